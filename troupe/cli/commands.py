"""The table of commands: where each one is, and its line of help, read without importing it."""

from typing import NamedTuple


class CommandEntry(NamedTuple):
    """One line of ``troupe --help``; ``target`` is a function, or a Typer of several commands."""

    panel: str
    target: str
    summary: str


COMMANDS: dict[str, CommandEntry] = {
    "demo": CommandEntry(
        "Train",
        "train_commands:demo",
        "Train the example team from nothing: make the base model, then `troupe train`.",
    ),
    "train": CommandEntry(
        "Train",
        "train_commands:train",
        "Train a team: start what is needed, submit, show progress, stop what was started.",
    ),
    "eval": CommandEntry("Train", "eval_commands:evaluate", "Measure success on held-out tasks."),
    "export": CommandEntry(
        "Train",
        "export_commands:export",
        "Write a checkpoint's policies as files that plain transformers and peft load.",
    ),
    "serve": CommandEntry(
        "Train",
        "serve_commands:serve",
        "Serve a trained team by OpenAI's API: each agent is a model, and so is the team.",
    ),
    "publish": CommandEntry(
        "Train",
        "publish_commands:publish",
        "Send a trained team to a hub, a registry or a folder: weights, cards and team.json.",
    ),
    "report": CommandEntry(
        "Train",
        "report_commands:report",
        "Write a run as one HTML page to send to a colleague: curve, episodes, cost, spec.",
    ),
    "init": CommandEntry(
        "Specs and models",
        "init_commands:init",
        "Write a first job spec: five questions, about 30 lines with comments.",
    ),
    "validate": CommandEntry(
        "Specs and models",
        "spec_commands:validate",
        "Check a spec and everything that it names; change nothing.",
    ),
    "plan": CommandEntry(
        "Specs and models",
        "plan_commands:plan",
        "Say which GPUs a job's servers and trainers take, why, and how to start it so.",
    ),
    "dryrun": CommandEntry(
        "Specs and models",
        "spec_commands:dryrun",
        "Play a few tasks with a scripted policy, down to groups and advantages; no services.",
    ),
    "schema": CommandEntry(
        "Specs and models", "spec_commands:schema", "Print the JSON schema of a job spec."
    ),
    "model": CommandEntry("Specs and models", "model_commands:model_app", "Make base models."),
    "data": CommandEntry(
        "Tasks",
        "data_commands:data_app",
        "Prepare published data sets; count a task's own.",
    ),
    "new": CommandEntry(
        "Tasks",
        "kit_commands:new",
        "Make a small working task in one file, or as a package, to be changed into your own.",
    ),
    "check": CommandEntry(
        "Tasks",
        "kit_commands:check",
        "Try to break a task family: purity, replay, forks, splits, bounded reward, odd texts.",
    ),
    "bundle": CommandEntry(
        "Jobs",
        "spec_commands:bundle",
        "Print a spec as `submit --with` sends it: with its bundle's digest and the task's facts.",
    ),
    "audit": CommandEntry(
        "Tasks",
        "audit_commands:audit",
        "Attack a task's reward: copies, constants, echoes, salad, searches; 1 on a finding.",
    ),
    "program": CommandEntry(
        "Tasks",
        "program_commands:program_app",
        "Look at an agent program: run, probe, check; export a plan as one.",
    ),
    "doctor": CommandEntry(
        "Platform",
        "doctor_commands:doctor",
        "Check GPU, memory, disk, ports, Redis, engine and versions; status 1 on an error.",
    ),
    "up": CommandEntry(
        "Platform",
        "platform_commands:up",
        "Start Redis and the router in the background, and keep them alive.",
    ),
    "down": CommandEntry(
        "Platform",
        "platform_commands:down",
        "Stop the platform and its jobs' processes; unfinished jobs continue at the next `up`.",
    ),
    "status": CommandEntry(
        "Platform",
        "platform_commands:status",
        "Show the platform, its processes and its jobs; status 1 when it is down or not ready.",
    ),
    "submit": CommandEntry(
        "Jobs", "job_commands:submit", "Submit a job to a running router, and print its id."
    ),
    "watch": CommandEntry(
        "Jobs",
        "job_commands:watch_job",
        "Follow a job until it ends; Ctrl-C stops watching, not the job.",
    ),
    "jobs": CommandEntry("Jobs", "run_folder_commands:jobs_app", "List jobs, newest first."),
    "queue": CommandEntry("Jobs", "job_commands:queue", "Show which jobs wait, and for what."),
    "pause": CommandEntry(
        "Jobs",
        "job_commands:pause",
        "Stop a job for now: its processes end and free their replicas.",
    ),
    "resume": CommandEntry(
        "Jobs",
        "job_commands:resume",
        "Queue a paused, failed or cancelled job again; it continues from its last checkpoint.",
    ),
    "cancel": CommandEntry(
        "Jobs", "job_commands:cancel", "End a job; what it learned stays in its run folder."
    ),
    "delete": CommandEntry(
        "Jobs",
        "job_commands:delete",
        "Delete the record of an ended job; its run folder stays unless --files is given.",
    ),
    "logs": CommandEntry("Jobs", "run_commands:logs", "Show the logs of a job's processes."),
    "checkpoints": CommandEntry(
        "Jobs", "run_commands:checkpoints", "List what can be downloaded from a job."
    ),
    "download": CommandEntry(
        "Jobs", "run_commands:download", "Download a policy as a tar archive."
    ),
    "episodes": CommandEntry("Jobs", "run_commands:episodes_app", "Look at recorded episodes."),
    "keys": CommandEntry(
        "Platform", "key_commands:keys_app", "Manage a router's API keys (TROUPE_ROUTER_API_KEYS)."
    ),
}
"""Every command, in the order in which help shows them. ``summary`` is the beginning of its
docstring; a test compares the two."""
