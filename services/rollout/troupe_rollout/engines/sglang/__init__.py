"""The `sglang` engine: stock SGLang servers on loopback, started and watched by the sidecar."""

from troupe_rollout.engines.sglang.engine import SglangEngine

__all__ = ["SglangEngine"]
