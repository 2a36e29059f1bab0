"""Lists the checkpoints of a run folder and streams their files as tar.

Owns the formats: "peft" is an adapter folder that peft loads, "merged" a transformers folder,
"state" the trainer's own file with the optimizer. Names are looked up among existing ones, so no
path of a request reaches the file system. Never needs torch.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from troupe.clients.rest.models.checkpoints import (
    CheckpointDocument,
    CheckpointFormat,
    CheckpointList,
    CheckpointPolicyDocument,
)
from troupe.errors import ConflictError, NotFoundError
from troupe.runtime.run_folder import (
    checkpoints_folder,
    newest_first,
    part_names,
    step_name,
    step_of,
)
from troupe.spec import JobSpec
from troupe_router.run.paths import is_within
from troupe_router.run.peft_export import Spliced, adapter_files, exactly

FINAL = "final"


@dataclass(frozen=True, slots=True)
class Archive:
    """Files of one download: name in the archive -> content or path."""

    name: str
    files: Sequence[tuple[str, bytes | Path | Spliced]]

    @property
    def size_bytes(self) -> int:
        """Length of the tar stream."""
        sizes = ((name, _length(content)) for name, content in self.files)
        return sum(len(_header(name, size)) + _padded(size) for name, size in sizes) + 1024

    def chunks(self) -> Iterator[bytes]:
        """The tar stream, file after file, never whole in memory."""
        for name, content in self.files:
            size = _length(content)
            yield _header(name, size)
            if isinstance(content, bytes):
                yield content
            elif isinstance(content, Spliced):
                yield from content.chunks()
            else:
                with content.open("rb") as file:
                    yield from exactly(file, size)
            yield bytes(_padded(size) - size)
        yield bytes(1024)


def checkpoint_list(run_dir: Path, spec: JobSpec) -> CheckpointList:
    """Everything that can be downloaded: the exported policies, then checkpoints, newest first."""
    checkpoints = [_final(run_dir, spec)] if is_within(run_dir, run_dir / "policies") else []
    for saved_step in sorted(_steps(run_dir, spec), reverse=True):
        checkpoints.append(_checkpoint(run_dir, saved_step, spec))
    return CheckpointList(checkpoints=[c for c in checkpoints if c and c.policies])


def archive(run_dir: Path, spec: JobSpec, checkpoint: str, policy: str, format: str) -> Archive:
    """One policy of one checkpoint; raises NotFoundError, or ConflictError for the format."""
    listed = checkpoint_list(run_dir, spec).checkpoints
    chosen = next((c for c in listed if c.id == checkpoint), None)
    if chosen is None:
        known = ", ".join(c.id for c in listed) or "none yet"
        raise NotFoundError(f"no checkpoint '{checkpoint[:80]}'; there are: {known}")
    held = next((p for p in chosen.policies if p.policy == policy), None)
    if held is None:
        known = ", ".join(p.policy for p in chosen.policies)
        raise NotFoundError(
            f"checkpoint {checkpoint} has no policy '{policy[:80]}'; it has {known}"
        )
    if format not in held.formats:
        raise ConflictError(
            f"{checkpoint} has policy '{policy}' as {', '.join(held.formats)}, not as {format}; "
            "merged models are written when a job succeeds"
        )
    stem = f"{run_dir.name}-{checkpoint}-{policy}-{format}"
    if checkpoint == FINAL:
        folder = run_dir / "policies" / policy / {"peft": "adapter", "merged": "merged"}[format]
        files = [(f"{stem}/{path.name}", path) for path in _files(run_dir, folder)]
        return Archive(stem, files)
    states = _state_of(_folder_of(run_dir, checkpoint, policy, spec), policy)
    if format == "state":
        return Archive(stem, [(f"{stem}/{path.name}", path) for path in states])
    parts = adapter_files(states[0], spec.policies[policy])
    return Archive(stem, [(f"{stem}/{name}", content) for name, content in parts])


def _final(run_dir: Path, spec: JobSpec) -> CheckpointDocument | None:
    """What trainers export after the last step; a job that gets other steps sets it aside."""
    step = spec.steps
    policies: list[CheckpointPolicyDocument] = []
    newest = 0.0
    for policy in spec.policies:
        folder = run_dir / "policies" / policy
        folders: dict[CheckpointFormat, Path] = {
            "peft": folder / "adapter",
            "merged": folder / "merged",
        }
        there: dict[CheckpointFormat, list[Path]] = {
            name: _files(run_dir, path) for name, path in folders.items() if path.is_dir()
        }
        files = [path for held in there.values() for path in held]
        if files:
            newest = max(newest, *(path.stat().st_mtime for path in files))
            size = sum(path.stat().st_size for path in files)
            named: list[CheckpointFormat] = [name for name, held in there.items() if held]
            policies.append(_policy(spec, policy, step, named, size))
    return _document(FINAL, step, newest, policies) if policies else None


def _checkpoint(run_dir: Path, step: int, spec: JobSpec) -> CheckpointDocument | None:
    policies: list[CheckpointPolicyDocument] = []
    name, newest = step_name(step), 0.0
    for policy, kind in ((n, p.train.kind) for n, p in spec.policies.items()):
        folder = _folder_of(run_dir, name, policy, spec)
        state_file = folder / "state.json"
        if not is_within(run_dir, state_file):
            continue
        try:
            body = json.loads(state_file.read_text("utf-8"))
            newest = max(newest, folder.stat().st_mtime)
            step = int(body["step"])
            files = _state_of(folder, policy)
        except (OSError, ValueError, KeyError, AttributeError):
            continue
        if all(is_within(run_dir, path) and path.is_file() for path in files):
            formats: list[CheckpointFormat] = ["peft", "state"] if kind == "lora" else ["state"]
            version = int(body.get("versions", {}).get(policy, step))
            size = sum(path.stat().st_size for path in files)
            policies.append(_policy(spec, policy, version, formats, size))
    return _document(name, step, newest, policies)


def _policy(
    spec: JobSpec, policy: str, version: int, formats: list[CheckpointFormat], size: int
) -> CheckpointPolicyDocument:
    return CheckpointPolicyDocument(
        policy=policy,
        version=version,
        trains=spec.trains(policy),
        formats=formats,
        size_bytes=size,
    )


def _document(
    name: str, step: int, at: float, policies: list[CheckpointPolicyDocument]
) -> CheckpointDocument:
    return CheckpointDocument(
        id=name,
        step=step,
        created_at=at,
        size_bytes=sum(policy.size_bytes for policy in policies),
        policies=policies,
    )


def _folder_of(run_dir: Path, name: str, policy: str, spec: JobSpec) -> Path:
    """The checkpoint ``name`` of the trainer of ``policy``."""
    trainer = policy if spec.trainer.per_policy else ""
    return checkpoints_folder(run_dir, trainer) / name


def _state_of(folder: Path, policy: str) -> list[Path]:
    """The files of ``policy`` in a checkpoint: one, or a part of each rank that wrote it."""
    body = json.loads((folder / "state.json").read_text("utf-8"))
    count = int(body.get("parts", {}).get(policy, 1))
    return [folder / name for name in part_names(policy, count)]


def _steps(run_dir: Path, spec: JobSpec) -> set[int]:
    """The steps of which at least one trainer has a checkpoint."""
    roots = [checkpoints_folder(run_dir, policy) for policy in spec.trainers()]
    return {step_of(folder) for root in roots for folder in newest_first(root)}


def _files(run_dir: Path, folder: Path) -> list[Path]:
    """Plain files of a flat folder; links that lead out of the run folder are left out."""
    return sorted(p for p in folder.iterdir() if p.is_file() and is_within(run_dir, p))


def _length(content: bytes | Path | Spliced) -> int:
    if isinstance(content, Spliced):
        return content.size_bytes
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def _padded(size: int) -> int:
    return -(-size // 512) * 512


def _header(name: str, size: int) -> bytes:
    import tarfile

    entry = tarfile.TarInfo(name)
    entry.size = size
    # ustar has no size of 8 GiB and more.
    return entry.tobuf(tarfile.GNU_FORMAT)
