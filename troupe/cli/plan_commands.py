"""``troupe plan``: which GPUs a job's servers and trainers take, and how to start them so."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer

from troupe.cli import options as opt
from troupe.cli.layout_settings import start_lines
from troupe.cli.output import out, print_json
from troupe.cli.specs import read_spec
from troupe.episodes.build import JobParts, layout_of, load_parts
from troupe.samplers.cost import draws_per_act
from troupe.spec.architecture import architecture_issues
from troupe.spec.deadlines import in_words
from troupe.spec.dtypes import with_dtypes
from troupe.spec.growth import (
    Growth,
    evaluated_at_most,
    longest_prompts,
    played_at_most,
    recorded_share,
    run_growth,
)
from troupe.spec.issues import SpecInvalidError
from troupe.spec.layout import GpuLayout, seats
from troupe.spec.memory import GB
from troupe.spec.step_cost import sampled_at_most, step_cost
from troupe.spec.transports import transport_words


def plan(
    spec: opt.SpecPath,
    gpus: Annotated[int, typer.Option("--gpus", min=1, max=64, help="GPUs of the machine.")] = 1,
    gpu_gb: Annotated[float, typer.Option("--gpu-gb", min=1.0, help="Memory of each, GB.")] = 80.0,
    place: Annotated[
        Literal["up", "compose", "chart"],
        typer.Option("--on", help="What starts it: `troupe up`, docker compose or the chart."),
    ] = "up",
    record_fraction: Annotated[
        float, typer.Option("--record-fraction", min=0.0, max=1.0, help="The router's setting.")
    ] = 1.0,
    record_tokens: Annotated[
        bool, typer.Option("--record-tokens/--no-record-tokens", help="The router's setting.")
    ] = True,
    record_tokens_per_s: Annotated[
        float, typer.Option("--record-tokens-per-s", min=0.0, help="The router's setting.")
    ] = 50_000.0,
    overrides: opt.Overrides = None,
    as_json: opt.AsJson = False,
) -> None:
    """Say which GPUs a job's servers and trainers take, why, and how to start it so."""
    job = with_dtypes(read_spec(spec, overrides or ()))
    if issues := architecture_issues(job):
        raise SpecInvalidError(issues)
    parts = load_parts(job)
    layout = layout_of(parts, gpus, gpu_gb, max_replicas=1 if place == "compose" else None)
    lines = start_lines(layout, place, job, str(spec))
    deadlines = in_words(parts.spec)
    weights = transport_words(
        parts.spec, is_colocated=layout.is_colocated, has_tls=place == "chart"
    )
    step = step_document(parts, layout)
    share = record_fraction
    if "tokens" in step:
        share = recorded_share(share, step["tokens"], step["play_s"], record_tokens_per_s)
    disk = disk_document(parts, share, record_tokens=record_tokens)
    if as_json:
        document = layout_document(layout) | {
            "disk": disk,
            "deadlines": deadlines,
            "step": step,
            "weights": weights,
        }
        print_json(document | {"start": lines})
        return
    console = out()
    for seat in seats(layout):
        console.print(seat, soft_wrap=True)
    if layout.is_colocated and layout.host_bytes is not None:
        host = f"host memory for who is off the GPU: {layout.host_bytes / GB:.1f} GB"
        console.print(host, soft_wrap=True)
    console.print(f"why: {layout.why}", soft_wrap=True)
    console.print(disk["sentence"], soft_wrap=True)
    console.print(weights, soft_wrap=True)
    console.print(step["sentence"], soft_wrap=True)
    console.print(f"deadlines: {'; '.join(deadlines)}", soft_wrap=True)
    for line in lines:
        console.print(f"  {line}", soft_wrap=True)


def step_document(parts: JobParts, layout: GpuLayout) -> dict[str, Any]:
    """What the longest step takes by the formula, as ``--json`` prints it."""
    tokens = sampled_at_most(parts.spec, draws_per_act(parts.algorithm.sampler(), parts.spec))
    cost = step_cost(parts.spec, layout, tokens)
    if cost is None:
        return {"sentence": "a step: unknown, as a model's config.json is not at hand"}
    seconds = asdict(cost)
    named = ", ".join(f"{name.removesuffix('_s')} {value:.3g}" for name, value in seconds.items())
    return seconds | {
        "tokens": sum(tokens.values()),
        "sentence": (
            f"a step of {sum(tokens.values()):,} tokens: {cost.total_s:,.0f} s ({named}) by a "
            "formula with assumed rates of an 80 GB GPU, none of them measured"
        ),
    }


def disk_document(
    parts: JobParts, record_fraction: float, *, record_tokens: bool
) -> dict[str, Any]:
    """The largest growth of the run folder, as ``--json`` prints it."""
    spec, sampler = parts.spec, parts.algorithm.sampler()
    draws = draws_per_act(sampler, spec)

    def grown(prompts: Mapping[str, int] | None) -> Growth:
        asked = math.ceil(draws / sampler.num_candidates)
        played = played_at_most(spec, draws, prompts, prompts_per_act=asked)
        return run_growth(
            spec,
            played,
            evaluated_at_most(spec, prompts),
            record_fraction=record_fraction,
            record_tokens=record_tokens,
        )

    short, context = grown(None), longest_prompts(spec)
    longest = None if context is None else grown(context)
    return {
        "recorded_share": record_fraction,
        "step_bytes": short.step_bytes,
        "evals_bytes": short.evals_bytes,
        "weights_bytes": short.weights_bytes,
        "total_bytes": short.after(spec.steps),
        "total_bytes_of_longest_prompts": longest and longest.after(spec.steps),
        "sentence": _disk_sentence(spec.steps, short, longest, record_fraction),
    }


def _disk_sentence(steps: int, short: Growth, longest: Growth | None, share: float) -> str:
    weights = short.weights_bytes
    held = "weights of an unknown size" if weights is None else f"{weights / GB:.2f} GB of weights"
    most = "more with long ones"
    if longest is not None:
        most = f"{longest.after(steps) / GB:.2f} GB where each prompt fills its model's context"
    return (
        f"run folder: with short prompts about {short.step_bytes / 1e6:.1f} MB a step, "
        f"{short.evals_bytes / 1e6:.1f} MB of evaluations and {held}, "
        f"{short.after(steps) / GB:.2f} GB after {steps} steps ({most}); {share:.0%} of the "
        "training episodes recorded; images not counted"
    )


def layout_document(layout: GpuLayout) -> dict[str, Any]:
    """The layout as ``--json`` prints it."""
    return {
        "gpus": layout.gpus,
        "gpu_gb": layout.gpu_gb,
        "colocated": layout.is_colocated,
        "servers": [
            {
                "pool": server.pool.name,
                "policies": server.pool.policies,
                "replicas": len(server.gpus),
                "tp": server.tp_size,
                "gpus": server.gpus,
                "peak_bytes": server.peak_bytes,
            }
            for server in layout.servers
        ],
        "trainers": [
            {
                "policy": trainer.policy,
                "ranks": len(trainer.gpus),
                "gpus": trainer.gpus,
                "peak_bytes": trainer.peak_bytes,
                "microbatch_tokens": trainer.microbatch_tokens,
                "rank_host_bytes": trainer.rank_host_bytes,
            }
            for trainer in layout.trainers
        ],
        "cached_tokens": layout.cached_tokens,
        "host_bytes": layout.host_bytes,
        "why": layout.why,
    }
