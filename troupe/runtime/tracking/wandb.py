"""Tracker ``wandb``: Weights & Biases, online or offline.

Needs the package wandb (extra ``troupe[trackers]``). The key and the host come from where wandb
looks for them (WANDB_API_KEY, WANDB_BASE_URL, its own login), never from a spec.
"""

from collections.abc import Mapping
from typing import Any, Literal

from troupe.runtime.tracking.tracker import TrackedRun
from troupe.spec import params


class WandbTracker:
    """One run of the job, by its unique id, so that a resumed job goes on in it."""

    class Params(params.Params):
        """Options, as `wandb.init` has them."""

        mode: Literal["online", "offline", "disabled", "shared"] | None = None
        entity: str | None = None
        group: str | None = None
        tags: tuple[str, ...] | None = None

    def __init__(self, run: TrackedRun) -> None:
        import wandb

        options = self.Params.model_validate(run.options)
        self._run: Any = wandb.init(
            project=run.project or "troupe",
            id=run.unique_id or run.job_id,
            name=run.job_id,
            resume="allow",
            reinit="create_new",  # the runs of other jobs in this process stay theirs
            dir=str(run.run_dir),
            config=dict(run.config),
            mode=options.mode,
            entity=options.entity,
            group=options.group,
            tags=options.tags,
            settings=wandb.Settings(console="off", silent=True, init_timeout=60),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """A history row."""
        self._run.log(dict(values), step=step)

    def close(self, state: str) -> None:
        """Finish the run; a failed job is a failed run."""
        self._run.finish(exit_code=0 if state in ("", "succeeded") else 1)
