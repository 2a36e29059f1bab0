"""What is measured of a training step, each metric declared once; all who show it read that.

A new metric is one field in `play.py` or `trainer.py` and the code that measures it. It is then in
metrics.jsonl, Prometheus, trackers, ``/v1/jobs/{id}/metrics`` and on the page.
"""
