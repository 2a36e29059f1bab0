"""Command that exports a checkpoint of a run folder as plain artifacts.

Owns no format: it reads what ``Checkpoints`` wrote and writes what a finished job writes. Needs no
services and no Redis. Exit status: 0 done, 2 bad input.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers.utils.logging import disable_progress_bar

from troupe.durable import replace_file
from troupe.errors import InvalidArgumentError, NotFoundError, TroupeError
from troupe.runtime.run_folder import EXPORT_FILE, checkpoints_folder, step_name, step_of
from troupe.spec.exported import export_document
from troupe.spec.job import JobSpec
from troupe.spec.load import load_spec
from troupe_trainer.checkpoint.export import export_model
from troupe_trainer.checkpoint.files import (
    CheckpointContents,
    Checkpoints,
    best_first,
    steps_of_all,
)
from troupe_trainer.model.learner_state import LearnerState, check_fits, state_of
from troupe_trainer.model.model import PolicyModel


def export(
    run_dir: Path, which: str, out: Path, policies: Sequence[str] = ()
) -> dict[str, dict[str, str]]:
    """Write ``adapter`` (LoRA only) and ``merged`` of each policy to ``out``; returns their paths.

    ``which`` is "latest", "best" (of ``checkpoint.keep_best``) or a step.

    Raises:
        NotFoundError: there is no such checkpoint or policy.
        InvalidArgumentError: the spec can't be read, or the checkpoint belongs to another spec.
    """
    spec = load_spec(run_dir / "spec.json")
    unknown = [name for name in policies if name not in spec.policies]
    if unknown:
        raise NotFoundError(
            f"the job has no policy '{unknown[0]}'; it has {', '.join(sorted(spec.policies))}"
        )
    step = _chosen(run_dir, spec, which)
    paths: dict[str, dict[str, str]] = {}
    snapshots: dict[str, CheckpointContents] = {}
    for policy in policies or sorted(spec.policies):
        trainer = policy if spec.trainer.per_policy else ""
        if trainer not in snapshots:
            folder = checkpoints_folder(run_dir, trainer) / step_name(step)
            snapshots[trainer] = Checkpoints(run_dir, spec, policy=trainer).read(folder)
        snapshot = snapshots[trainer]
        model = _model(policy, spec, state_of(snapshot.learners, policy))
        paths[policy] = export_model(model, spec.policies[policy], out / policy)
        del model  # before the next one is made
        replace_file(out / policy / "checkpoint.json", _origin(run_dir, snapshot))
    replace_file(out / EXPORT_FILE, export_document(run_dir.resolve().name, spec))
    return paths


def _model(policy: str, spec: JobSpec, state: LearnerState) -> PolicyModel:
    """The policy with the weights of ``state``; no reference, and none of the optimizer's moments.

    Raises as `Learner.restore` does.
    """
    model = PolicyModel(policy, spec.policies[policy], seed=spec.seed, device="cpu")
    check_fits(f"policy '{policy}'", state, model.trainable(), model.base_digest)
    model.load_trainable(state.tensors, "param/")
    return model


def _chosen(run_dir: Path, spec: JobSpec, which: str) -> int:
    """The chosen step, which every trainer has a checkpoint of."""
    folders = [checkpoints_folder(run_dir, policy) for policy in spec.trainers()]
    common = steps_of_all(run_dir, spec)
    names = ", ".join(step_name(step) for step in common) or "none"
    if which == "latest":
        steps = common[:1]
    elif which == "best" and spec.trainer.per_policy:
        raise InvalidArgumentError(
            "the best step is chosen by the reward of all agents, and each policy's trainer "
            f"recorded only that of its agents; name a step: {names}"
        )
    elif which == "best" and spec.algorithm.alternate is not None:
        raise InvalidArgumentError(
            "with algorithm.alternate each step has the rewards of another policy's agents alone, "
            f"by which no best step can be chosen; name a step: {names}"
        )
    elif which == "best" and not spec.checkpoint.keep_best:
        raise InvalidArgumentError(
            "the best of a job's checkpoints are kept with checkpoint.keep_best, which is 0 here: "
            f"what is left are the newest, whatever they earned; name a step: {names}"
        )
    elif which == "best":
        steps = [step_of(path) for path in best_first(folders[0])[:1]]
    elif which.isdecimal():
        steps = [step for step in common if step == int(which)]
    else:
        raise InvalidArgumentError(f"'{which}' is not a step, 'latest' or 'best'")
    if not steps:
        folder = " and ".join(str(folder) for folder in folders)
        raise NotFoundError(f"{folder} has no checkpoint '{which}'; there are: {names}")
    return steps[0]


def _origin(run_dir: Path, snapshot: CheckpointContents) -> str:
    return json.dumps({"job_id": run_dir.resolve().name, "step": snapshot.step}, indent=2) + "\n"


def main() -> int:
    """Export, and print the paths as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--checkpoint", default="latest")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--policy", action="append", default=[])
    options = parser.parse_args()
    torch.set_num_threads(1)
    disable_progress_bar()
    try:
        paths = export(options.run_dir, options.checkpoint, options.out, options.policy)
    except TroupeError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 2
    print(json.dumps(paths))
    return 0


if __name__ == "__main__":
    sys.exit(main())
