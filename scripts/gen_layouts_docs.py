"""Writes the table of docs/operations/layouts.md: ``gen_layouts_docs.py PAGE``.

The text around the table stays. Every figure is that of the functions which a job is held against:
``fit_batch`` (the trainer) and ``server_split`` (a server), so the page can't say what they refuse.
"""

import sys
from pathlib import Path
from typing import Any

from troupe.spec import JobSpec, parse_spec
from troupe.spec.fit import fit_batch
from troupe.spec.layout import plan_layout
from troupe.spec.memory import GB
from troupe.spec.pools import rollout_pools
from troupe.spec.sizes import CACHED_TOKENS, fewest_ranks, server_split
from troupe.spec.step_cost import sampled_at_most, step_cost

BEGIN, END = "<!-- computed: begin -->", "<!-- computed: end -->"
MODELS = ("Qwen/Qwen3-1.7B", "Qwen/Qwen3-4B", "Qwen/Qwen3-8B", "Qwen/Qwen3-14B")
TEAMS = {"one adapter": ("lora", 1), "two adapters": ("lora", 2), "all weights": ("full", 1)}
TEAMS |= {"all weights, two policies": ("full", 2)}
GPUS_GB = (24, 48, 80)
MOST = 8
COST_BEGIN, COST_END = "<!-- cost: begin -->", "<!-- cost: end -->"
LAYOUTS = {"one GPU": 1, "a box of eight": 8, "two nodes of eight": 16}
CANDIDATES = 8
RANK, MAX_NEW_TOKENS, MICROBATCH = 32, 1024, 16_384


def main() -> None:
    """Write the table into the page in the first argument."""
    page = Path(sys.argv[1])
    text = page.read_text("utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    text = f"{before}{BEGIN}\n{table()}\n{END}{after}"
    before, rest = text.split(COST_BEGIN)
    after = rest.split(COST_END)[1]
    text = f"{before}{COST_BEGIN}\n{costs()}\n{COST_END}{after}"
    page.write_text(text, encoding="utf-8")


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
    splits = [
        server_split(spec, pool, gpu_gb, CACHED_TOKENS[0], MOST) for pool in rollout_pools(spec)
    ]
    ranks = fewest_ranks(spec, gpu_gb, MOST)
    if ranks is None or None in splits:
        return "-"
    servers = sum(split[0] for split in splits if split is not None)
    batch = fit_batch(spec, gpu_gb * GB, ranks=ranks).batch
    tokens = batch.budget
    return f"{servers} + {ranks}" + ("" if tokens == MICROBATCH else f" ({tokens:,} tokens)")


def costs() -> str:
    """What a step takes on one GPU, on a box of eight and on two of them, in Markdown."""
    lines = [
        "| layout | Qwen3-8B, two adapters | play | learn | push | turns | a step |",
        "|---" * 7 + "|",
    ]
    spec = _spec("Qwen/Qwen3-8B", "lora", 2)
    tokens = sampled_at_most(spec, CANDIDATES)
    for name, gpus in LAYOUTS.items():
        layout = plan_layout(spec, gpus)
        cost = step_cost(spec, layout, tokens)
        assert cost is not None
        servers = sum(len(place.gpus) for place in layout.servers)
        seated = f"{servers} server{'s' if servers > 1 else ''}, {layout.num_learning} rank(s)"
        seated += ", in turns" if layout.is_colocated else ""
        parts = [cost.play_s, cost.learn_s, cost.push_s, cost.turns_s, cost.total_s]
        lines.append(f"| {name} | {seated} | {' | '.join(map(_seconds, parts))} |")
    lines += ["", f"{sum(tokens.values()):,} tokens a step."]
    return "\n".join(lines)


def _seconds(value: float) -> str:
    return f"{value:,.0f} s" if value >= 100 or not value else f"{value:.2g} s"


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
