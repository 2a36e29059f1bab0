"""The metrics of a training step, each declared once and read by everything that shows it.

A new metric is one field in `play.py` or `trainer.py` and the code that measures it. It then
appears in metrics.jsonl, Prometheus, trackers, ``/v1/jobs/{id}/metrics`` and on the page.

Who measures (services/router/troupe_router/, services/trainer/troupe_trainer/):
    `play.py`: run/round_metrics.py of the router, from the episodes of a round.
    `trainer.py`: learn/report.py, from the step's groups, and it merges the rest: ``source="loss"``
        by name from a loss's ``metric_sums`` (troupe/algorithms/losses/); ``source="critic"`` from
        learn/critic.py; parity and importance from learn/outcome.py; loss, entropy, gradient norm,
        largest ratio, clip fraction and learning rate from learn/learner.py.
"""
