"""How a job's weights travel where its operator names no way: by file, or without one. Pure.

The trainer, ``troupe plan`` and ``troupe validate`` ask here.
"""

from troupe.spec.deadlines import model_bytes
from troupe.spec.job import JobSpec
from troupe.spec.memory import GB
from troupe.spec.policy import FullSpec

LARGE_BYTES = 1e9
"""Full weights from here on go from the learner's tensors. Smaller ones are a file at no cost, from
which a restarted trainer can send what was committed."""


def goes_without_file(spec: JobSpec, *, is_colocated: bool = False, has_tls: bool = False) -> bool:
    """Whether full weights are broadcast where nothing else is said and the engines take it.

    Not where trainer and server take turns on a GPU (a server wakes from a file), nor with mutual
    TLS (a broadcast is not encrypted).
    """
    if is_colocated or has_tls:
        return False
    return max(_full_bytes(spec).values(), default=0.0) >= LARGE_BYTES


def transport_words(spec: JobSpec, *, is_colocated: bool = False, has_tls: bool = False) -> str:
    """A sentence on how each policy's weights travel by default."""
    broadcast = goes_without_file(spec, is_colocated=is_colocated, has_tls=has_tls)
    full, parts = _full_bytes(spec), list[str]()
    if adapters := [n for n, p in spec.policies.items() if p.train.kind == "lora"]:
        parts.append(f"{', '.join(adapters)}: an adapter's file")
    for name, size in full.items():
        of = f" ({size / GB:.1f} GB)" if size else ""
        if broadcast:
            parts.append(f"{name}{of}: from the learner's tensors, no file")
        else:
            parts.append(f"{name}{of}: a file")
    words = "weights travel as " + "; ".join(parts)
    if has_tls and goes_without_file(spec, is_colocated=is_colocated):
        words += " (with mutual TLS, the chart's default; without it full weights take no file)"
    if broadcast:
        words += " (files with mutual TLS, or where an engine joins no group or has another NCCL)"
    return words


def _full_bytes(spec: JobSpec) -> dict[str, float]:
    """Bytes of each policy that trains all weights; 0 where its model's size is unknown."""
    return {
        name: model_bytes(policy.model, policy.dtype)
        for name, policy in spec.policies.items()
        if isinstance(policy.train, FullSpec)
    }
