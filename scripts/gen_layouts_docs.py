"""Writes the table of docs/operations/layouts.md: ``gen_layouts_docs.py PAGE``.

The text around the table stays. Every figure is that of the functions which a job is held against:
``fit_batch`` (the trainer) and ``memory_plan`` (a server), so the page can't say what they refuse.
"""

import sys
from pathlib import Path
from typing import Any

from troupe.errors import InvalidArgumentError
from troupe.runtime.engines.presets import check_tp, memory_plan
from troupe.spec import JobSpec, parse_spec
from troupe.spec.fit import fit_batch
from troupe.spec.memory import GB, decoder_shape
from troupe.spec.pools import rollout_pools

BEGIN, END = "<!-- computed: begin -->", "<!-- computed: end -->"
MODELS = ("Qwen/Qwen3-1.7B", "Qwen/Qwen3-4B", "Qwen/Qwen3-8B", "Qwen/Qwen3-14B")
TEAMS = {"one adapter": ("lora", 1), "two adapters": ("lora", 2), "all weights": ("full", 1)}
TEAMS |= {"all weights, two policies": ("full", 2)}
GPUS_GB = (24, 48, 80)
SPLITS = (1, 2, 4, 8)
RANK, MAX_NEW_TOKENS, MICROBATCH, CACHED_TOKENS = 32, 1024, 16_384, 131_072
SERVED = 0.8
"""Share of a GPU that a server takes (``presets.Preset.mem_fraction``)."""
VERSIONS = 2
"""Adapters of one policy that a server holds, strictly on-policy."""


def main() -> None:
    """Write the table into the page in the first argument."""
    page = Path(sys.argv[1])
    text = page.read_text("utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")


def table() -> str:
    """The table in Markdown."""
    heads = [f"{gpu} GB" for gpu in GPUS_GB]
    lines = [f"| model | trained | {' | '.join(heads)} |", "|---" * (2 + len(heads)) + "|"]
    for model in MODELS:
        for team, (kind, count) in TEAMS.items():
            spec = _spec(model, kind, count)
            cells = [layout(spec, gpu) for gpu in GPUS_GB]
            lines.append(f"| {model.split('/')[1]} | {team} | {' | '.join(cells)} |")
    return "\n".join(lines)


def layout(spec: JobSpec, gpu_gb: int) -> str:
    """The fewest GPUs of ``gpu_gb``: servers + trainer, with its micro-batch; "-": not with 8."""
    servers, trainer = _servers(spec, gpu_gb), _trainer(spec, gpu_gb)
    if servers is None or trainer is None:
        return "-"
    ranks, tokens = trainer
    return f"{servers} + {ranks}" + ("" if tokens == MICROBATCH else f" ({tokens:,} tokens)")


def _trainer(spec: JobSpec, gpu_gb: int) -> tuple[int, int] | None:
    for ranks in SPLITS:
        try:
            batch = fit_batch(spec, gpu_gb * GB, ranks=ranks).batch
        except InvalidArgumentError:
            continue
        return ranks, batch.tokens_per_row * batch.rows_per_microbatch
    return None


def _servers(spec: JobSpec, gpu_gb: int) -> int | None:
    pools = rollout_pools(spec)
    is_lora = spec.policies[pools[0].name].train.kind == "lora"
    shape = decoder_shape(pools[0].model)
    assert shape is not None
    for split in SPLITS:
        plan = memory_plan(
            shape,
            pools[0].dtype,
            lora_slots=VERSIONS * len(pools[0].policies) if is_lora else 0,
            lora_rank=RANK,
            kv_tokens=CACHED_TOKENS,
            tp_size=split,
        )
        if plan.total <= SERVED * gpu_gb * GB:
            check_tp(pools[0].model, shape, split)
            return split * len(pools)
    return None


def _spec(model: str, kind: str, count: int) -> JobSpec:
    names = ["tool", "planner"]
    train: dict[str, Any] = {"kind": kind} | ({"rank": RANK} if kind == "lora" else {})
    policy = {"model": model, "dtype": "bfloat16", "train": train}
    policies = dict.fromkeys(names[:count], policy)
    return parse_spec(
        {
            "name": "layout",
            "steps": 1,
            "task": {"name": "plan_path"},
            "workflow": {"order": names},
            "agents": {name: {"policy": names[i % count]} for i, name in enumerate(names)},
            "policies": policies,
            "sampling": {"max_new_tokens": MAX_NEW_TOKENS},
            "batch": {"tokens_per_row": MICROBATCH, "rows_per_microbatch": 1},
        }
    )


if __name__ == "__main__":
    main()
