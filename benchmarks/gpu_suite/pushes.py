"""What the pushes of ``gpu_rollout`` come to for larger models, by a formula that is shown.

Owns no measurement. For each transport: seconds = fixed + slope * GB, through an adapter's push and
one of full weights, which differ in size alone; a fit through two points, so it has no error bar.
Replicas that are sent one copy each (grpc) are taken to share the sender: their number times slope.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.report import goal
from troupe.spec.memory import GB, decoder_shape

FORMULA = "seconds = fixed_s + s_per_gb * GB * copies; copies: replicas by grpc, else 1"
LARGE = ("Qwen3-1.7B", "Qwen3-8B")
FULL_GOAL_S = 5.0
LORA_GOAL_S = 1.0
REPLICAS = 8


def per_gb(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The line of each transport that was measured with an adapter and with full weights."""
    pushed = {(row["via"], row["kind"]): row for row in rows if "p50_s" in row}
    lines: dict[str, dict[str, float]] = {}
    for via in dict.fromkeys(via for via, _ in pushed):
        full = pushed.get((via, "full"))
        # Adapters go by grpc where full weights are broadcast.
        lora = pushed.get((via, "lora")) or pushed.get(("grpc", "lora"))
        if full is None or lora is None or full["bytes"] <= lora["bytes"]:
            continue
        if full["p50_s"] <= lora["p50_s"]:  # both are too small for their sizes to tell
            continue
        slope = (full["p50_s"] - lora["p50_s"]) * GB / (full["bytes"] - lora["bytes"])
        fixed = lora["p50_s"] - slope * lora["bytes"] / GB
        lines[via] = {"s_per_gb": round(slope, 4), "fixed_s": round(fixed, 4)}
    return lines


def extrapolated(lines: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Pushes of larger models in bfloat16: full weights to one and eight replicas, and adapters."""
    rows: list[dict[str, Any]] = []
    for via, line in lines.items():
        for name in LARGE:
            shape = decoder_shape(name)
            assert shape is not None
            sizes = {"full": shape.num_parameters() * 2, "lora": shape.lora_bytes(32, "bfloat16")}
            for kind, size in sizes.items():
                for replicas in (1, REPLICAS):
                    copies = replicas if via == "grpc" else 1
                    seconds = line["fixed_s"] + line["s_per_gb"] * size / GB * copies
                    row = {"model": name, "kind": kind, "via": via, "replicas": replicas}
                    rows.append(row | {"gb": round(size / GB, 3), "seconds": round(seconds, 2)})
    return rows


def with_extrapolation(line: dict[str, Any]) -> dict[str, Any]:
    """``gpu_rollout``'s line with seconds a GB, and what they would make of Qwen3-8B."""
    lines = per_gb(line.get("rows", []))
    rows = extrapolated(lines)
    goals = list(line.get("goals", []))
    for kind, limit in (("full", FULL_GOAL_S), ("lora", LORA_GOAL_S)):
        of_kind = [r for r in rows if (r["model"], r["kind"], r["replicas"]) == (LARGE[1], kind, 8)]
        if of_kind:
            best = min(of_kind, key=lambda row: row["seconds"])
            name = f"8B {kind} to {REPLICAS} replicas, extrapolated ({best['via']}), s"
            goals.append(goal(name, best["seconds"], limit, best["seconds"] <= limit))
    computed = {"formula": FORMULA, "transports": lines, "extrapolated": rows}
    return line | {"per_gb": computed, "goals": goals}
