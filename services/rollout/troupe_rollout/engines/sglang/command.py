"""The command line and environment of one SGLang server. Pure: settings and facts in, argv out."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from troupe_rollout.engines.sglang.settings import SglangSettings

LAUNCH = Path(__file__).with_name("server") / "launch.py"
CPU_TOTAL_TOKENS = 16384
CPU_RUNNING_REQUESTS = 64
MAX_FRACTION = 0.95
KEPT_IMAGES_MIB = 256
"""Prepared images that SGLang keeps in host memory."""
MAX_TOP_K = 4096
"""Largest top-k of a request, and that of one with top-p alone."""
SAMPLING_MASK_TOKENS = 2 * MAX_TOP_K
"""SGLang ends a request with more tokens left than this: those that tie at the cut are kept too."""
SAVED_GRAPHS = "SGLANG_MEMORY_SAVER_CUDA_GRAPH"
"""Without it a server that sleeps keeps the memory of its graphs."""
WATCHDOG_S = 120
"""A server on a GPU ends where one batch takes longer; SGLang's own limit is 300 s."""
RESERVED_TOKENS = 7
"""SGLang's inputs are shorter than its context less 6; ours may fill the model's to the last."""


@dataclass(frozen=True, slots=True)
class LoraPlan:
    """Room for adapters. ``slots`` are computed with at once, ``loaded`` held in host memory."""

    rank: int
    targets: tuple[str, ...]
    slots: int
    loaded: int


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """One server: which model, on what, with room for which adapters (None: full weights).

    ``share_bytes``: of a GPU that it shares with other servers, for weights and cache; 0: alone.
    """

    model: Path
    dtype: str
    device: str
    context_length: int
    lora: LoraPlan | None
    mem_fraction: float = 0.0
    share_bytes: int = 0
    is_colocated: bool = False
    takes_images: bool = False


def beside_others(plan: ServerPlan, free_bytes: int) -> ServerPlan:
    """With its fraction of a GPU of which ``free_bytes`` are left.

    SGLang takes --mem-fraction-static of what was free before this server loaded.
    """
    fraction = min(plan.share_bytes / max(free_bytes, 1), MAX_FRACTION)
    return replace(plan, mem_fraction=round(fraction, 4))


def server_argv(settings: SglangSettings, plan: ServerPlan, *, python: str, port: int) -> list[str]:
    """The argv. ``extra_flags`` override all but the address: a server is for its sidecar."""
    flags: dict[str, str | int | float] = {
        "--model-path": str(plan.model),
        "--load-format": "safetensors",
        "--device": plan.device,
        "--dtype": plan.dtype,
        "--tp-size": settings.tp_size,
        "--dp-size": settings.dp_size,
        "--log-level": settings.log_level,
        "--attention-backend": settings.attention_backend,
        "--sampling-backend": settings.sampling_backend,
        "--context-length": plan.context_length + RESERVED_TOKENS,
        "--max-total-tokens": settings.max_total_tokens,
        "--max-running-requests": settings.max_running_requests,
        "--sampling-mask-max-tokens": SAMPLING_MASK_TOKENS,
        "--mem-fraction-static": plan.mem_fraction,
        "--lora-backend": settings.lora_backend if plan.lora else "",
    }
    switches = ["--enable-metrics"]
    if plan.device == "cpu":
        flags |= _cpu_flags(settings, plan)
        switches += ["--disable-overlap-schedule", "--sleep-on-idle"]
    else:
        flags["--watchdog-timeout"] = WATCHDOG_S
    if plan.device != "cpu" and plan.is_colocated:
        # On a CPU there is no library for it, and giving memory back does nothing.
        # Graphs of prompts can't be given back (SGLang refuses them with the saver); those of
        # single tokens can, by SAVED_GRAPHS.
        switches += ["--enable-memory-saver", "--disable-prefill-cuda-graph"]
        if plan.lora:  # the base is never sent again; full weights are loaded from their file
            switches.append("--enable-weights-cpu-backup")
    if plan.takes_images:
        # With this cache SGLang puts the images' tokens into the ids that it is sent; without, it
        # decodes the ids to text and encodes them again.
        flags["--mm-preprocess-cache-size-mb"] = KEPT_IMAGES_MIB
        # As transformers, and so the trainer, places the patches of Qwen3-VL.
        switches.append("--enable-precise-embedding-interpolation")
    if settings.speculation == "ngram":
        # A chain of drafts, not a tree: any size of cache page takes it. SGLang's thresholds of
        # acceptance stay at 1.0, with which what is accepted is sampled from the model.
        flags |= {
            "--speculative-algorithm": "NGRAM",
            "--speculative-ngram-max-bfs-breadth": 1,
            "--speculative-num-draft-tokens": settings.speculation_tokens,
        }
    if settings.deterministic:
        switches.append("--enable-deterministic-inference")
    argv = [python, str(LAUNCH), "--parent-pid", str(os.getpid())]
    for flag, value in flags.items():
        if value:
            argv += [flag, str(value)]
    argv += [*switches, *_lora_flags(plan.lora), *shlex.split(settings.extra_flags)]
    return [*argv, "--host", "127.0.0.1", "--port", str(port)]


def server_environment(
    settings: SglangSettings, plan: ServerPlan, inherited: Mapping[str, str]
) -> dict[str, str]:
    """The child's environment, without Troupe's settings."""
    environment = {
        name: value
        for name, value in inherited.items()
        if not name.startswith("TROUPE_") and name not in ("PYTHONPATH", "PYTHONHOME")
    }
    environment |= {
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",
        "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1",  # for RESERVED_TOKENS; see above
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
    if plan.is_colocated and plan.device != "cpu":
        environment[SAVED_GRAPHS] = "1"
    if plan.takes_images and plan.lora is None:
        # SGLang keeps an image's features over a change of the weights that computed them.
        environment["SGLANG_VLM_CACHE_SIZE_MB"] = "0"
    if plan.device == "cpu":
        environment |= {
            "SGLANG_USE_CPU_ENGINE": "1",
            "OMP_NUM_THREADS": str(settings.threads),
            "TORCHDYNAMO_DISABLE": "1",
            "CUDA_VISIBLE_DEVICES": "",
        }
        ranks = settings.tp_size * settings.dp_size
        if ranks > 1:
            cores = os.cpu_count() or 1
            environment["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(
                str(i % cores) for i in range(ranks)
            )
    return environment


def _cpu_flags(settings: SglangSettings, plan: ServerPlan) -> dict[str, str | int]:
    return {
        "--attention-backend": settings.attention_backend or "torch_native",
        "--sampling-backend": settings.sampling_backend or "pytorch",
        "--grammar-backend": "none",
        "--max-total-tokens": settings.max_total_tokens or CPU_TOTAL_TOKENS,
        "--max-running-requests": settings.max_running_requests or CPU_RUNNING_REQUESTS,
        "--lora-backend": (settings.lora_backend or "torch_native") if plan.lora else "",
    }


def _lora_flags(lora: LoraPlan | None) -> list[str]:
    if lora is None:
        return []
    return [
        "--enable-lora",
        "--max-lora-rank",
        str(lora.rank),
        "--max-loras-per-batch",
        str(lora.slots + 1),
        "--max-loaded-loras",
        str(lora.loaded),
        "--lora-target-modules",
        *lora.targets,
    ]
