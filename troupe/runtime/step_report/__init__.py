"""The metrics of a training step, each declared once and read by everything that shows it.

A new metric is one field in `play.py` or `trainer.py` and the code that measures it. It then
appears in metrics.jsonl, Prometheus, trackers, ``/v1/jobs/{id}/metrics`` and on the page.
"""
