"""What drives one job: controller, processes, rounds, progress, watchdog. No HTTP."""
