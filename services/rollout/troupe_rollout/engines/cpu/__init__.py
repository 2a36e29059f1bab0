"""The `cpu` engine: transformers and torch inside the sidecar's own process."""

from troupe_rollout.engines.cpu.engine import CpuEngine

__all__ = ["CpuEngine"]
