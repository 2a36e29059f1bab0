"""Puts the page of a run together: what was trained, how it went, episodes, cost and spec.

Reads the run's own files alone. The page's policy lets a browser load nothing and run nothing.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from troupe.errors import NotFoundError
from troupe.evaluation.documents import summary_of
from troupe.evaluation.estimators import wilson
from troupe.evaluation.run_report import episode_reward, whole_lines
from troupe.ids import eval_round, train_round
from troupe.publishing.card import compared_policies
from troupe.publishing.page.curves import curves_html
from troupe.publishing.page.episodes import Extremes, episode_html, extremes
from troupe.publishing.page.style import CSS
from troupe.publishing.page.texts import shown, table
from troupe.publishing.scrub import scrubbed, without_paths
from troupe.spec import JobSpec, load_spec

MAX_BYTES = 2_500_000
"""Bytes of all episodes; those that would go beyond are left out, and the page says so."""


def page_of(run_dir: Path, evaluation: Path | None = None) -> str:
    """The page of a run folder, with an evaluation's comparison where one is given.

    Raises NotFoundError when ``run_dir`` is no run folder.
    """
    if not (run_dir / "spec.json").is_file():
        raise NotFoundError(f"{run_dir} is not a run folder (there is no spec.json in it)")
    spec = load_spec(run_dir / "spec.json")
    lines = sorted(whole_lines(run_dir / "metrics.jsonl"), key=lambda line: line["step"])
    train = [line for line in lines if line["kind"] == "train"]
    evals = [line for line in lines if line["kind"] == "eval"]
    summary = summary_of(run_dir)
    parts = [
        _head(run_dir.resolve().name, spec, train, evals, summary),
        _warnings(lines, summary),
        curves_html(train, evals),
        _evaluations(evals, spec),
        _compared(evaluation) if evaluation else "",
        _episodes(run_dir / "episodes.jsonl", train, evals),
        _cost(train, summary),
        _spec(spec, summary),
    ]
    return _document_html(run_dir.resolve().name, "\n".join(filter(None, parts)))


def _document_html(title: str, body: str) -> str:
    digest = base64.b64encode(hashlib.sha256(CSS.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="referrer" content="no-referrer">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{shown(title)}</title><style>{CSS}</style></head>\n"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def _head(
    title: str,
    spec: JobSpec,
    train: Sequence[Mapping[str, Any]],
    evals: Sequence[Mapping[str, Any]],
    summary: Mapping[str, Any],
) -> str:
    seats = ", ".join(
        f"<b>{shown(name)}</b> (policy {shown(agent.policy)})"
        for name, agent in spec.agents.items()
    )
    models = sorted({without_paths(policy.model) for policy in spec.policies.values()})
    state = summary.get("state") or "has not ended"
    result = ""
    if len(evals) > 1:
        first, last = evals[0], evals[-1]
        result = (
            f'<p class="big">Held-out success {_percent(first)} before training, '
            f"<b>{_percent(last)}</b> after {int(last['step'])} steps.</p>"
        )
    return (
        f"<header><h1>{shown(title)}</h1>{result}<p>Task <b>{shown(spec.task.name)}</b>, team of "
        f"{seats}, workflow {shown(spec.workflow.kind)} with at most {spec.workflow.max_turns} "
        f"turns. Algorithm <b>{shown(spec.algorithm.kind)}</b> with {spec.algorithm.group_size} "
        f"candidates, on {', '.join(map(shown, models))}; {len(train)} of {spec.steps} steps of "
        f"{spec.tasks_per_step} tasks, seed {spec.seed}. The job {shown(state)}"
        f"{': ' + shown(summary['reason']) if summary.get('reason') else ''}.</p></header>"
    )


def _warnings(lines: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> str:
    suspect = [f"{line['kind']} {int(line['step'])}" for line in lines if line.get("is_suspect")]
    parts: list[str] = []
    if suspect:
        parts.append(
            '<p class="bad">The reward rose while success, answer diversity or the strict judge '
            f"fell in {shown(', '.join(suspect))}: read their episodes before you trust the curve."
            "</p>"
        )
    if losses := summary.get("records_lost"):
        words = ", ".join(f"{loss['file']}: {loss['loss']}" for loss in losses)
        parts.append(f'<p class="bad">Records of this run were lost: {shown(words)}</p>')
    return f"<section><h2>Read first</h2>{''.join(parts)}</section>" if parts else ""


def _evaluations(evals: Sequence[Mapping[str, Any]], spec: JobSpec) -> str:
    if not evals:
        return ""
    rows = [
        [
            str(int(line["step"])),
            _percent(line),
            str(line["num_tasks"]),
            _number(episode_reward(line)),
        ]
        for line in evals
    ]
    head = ["after step", "success (95 % interval)", "tasks", "reward of an episode"]
    words = f"Held-out tasks, split {spec.eval.split}"
    return f"<section><h2>Evaluation</h2>{table(head, rows, label=words)}</section>"


def _compared(folder: Path) -> str:
    """Teams side by side, such as the trained one with single agents exchanged: an ablation."""
    policies, comparisons = compared_policies(folder)
    rows = [
        [
            shown(without_paths(policy["policy"])),
            _interval(policy["success"]),
            _interval(policy["team_return"], scale=1.0),
            str(policy["num_tasks"]),
        ]
        for policy in policies
    ]
    html = table(["team", "success", "return", "tasks"], rows, label="Success of each team")
    differences = [
        [
            shown(without_paths(c["policy"])),
            shown(without_paths(c["against"])),
            _interval(c["difference"]),
        ]
        for c in comparisons
    ]
    if differences:
        html += table(["team", "against", "difference"], differences, label="Task by task")
    return f"<section><h2>Teams compared</h2>{html}</section>"


def _episodes(
    path: Path, train: Sequence[Mapping[str, Any]], evals: Sequence[Mapping[str, Any]]
) -> str:
    rounds = [("Last evaluation", eval_round(int(line["step"]))) for line in evals[-1:]]
    rounds += [("Last training step", train_round(int(line["step"]))) for line in train[-1:]]
    if len(evals) > 1:
        rounds.append(("Evaluation before training", eval_round(int(evals[0]["step"]))))
    room, parts = MAX_BYTES, list[str]()
    for title, round_id in rounds:
        chosen = extremes(path, round_id)
        if chosen.num_episodes:
            html, room = _round(title, chosen, room)
            parts.append(html)
    if not parts:
        return ""
    words = (
        "Best and worst by success, then by the mean reward of all candidates. Each agent's "
        "candidates answer one prompt; the play goes on from the executed one."
    )
    return f'<section><h2>Episodes</h2><p class="soft">{words}</p>{"".join(parts)}</section>'


def _round(title: str, chosen: Extremes, room: int) -> tuple[str, int]:
    parts = [f"<h3>{shown(title)}: {chosen.num_episodes} episodes</h3>"]
    for word, lines in (("Best", chosen.best), ("Worst", chosen.worst)):
        parts.append(f"<p>{word}</p>")
        for line in lines:
            html = episode_html(line) if room else ""
            if not html or len(html.encode()) > room:
                room = 0
                parts.append('<p class="cut">One episode is left out: the page has grown long.</p>')
                continue
            room -= len(html.encode())
            parts.append(html)
    return "".join(parts), room


def _cost(train: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> str:
    if not train:
        return ""
    phases: dict[str, float] = {}
    for line in train:
        for name, seconds in line["phases"].items():
            phases[name] = phases.get(name, 0.0) + seconds
    wall_s = sum(line["wall_s"] for line in train)
    sampled = sum(int(line.get("num_tokens") or 0) for line in train)
    trained = sum(int(line.get("trained_tokens") or 0) for line in train)
    groups = sum(int(line.get("groups_trained") or 0) for line in train)
    flat = sum(int(line.get("groups_zero_variance") or 0) for line in train)
    peak = max((int(line.get("peak_memory_bytes") or 0) for line in train), default=0)
    rows = [
        ["time of all steps", f"{wall_s:,.0f} s, {wall_s / len(train):.2f} s a step"],
        ["whole job", f"{summary['wall_s']:,.0f} s" if summary.get("wall_s") else "-"],
        ["tokens sampled", f"{sampled:,}"],
        ["tokens trained", f"{trained:,}"],
        ["groups trained", f"{groups:,}"],
        ["groups without variance", f"{flat:,}: all candidates equal, so nothing to learn from"],
        ["trainer's peak memory", f"{peak / 1e9:.2f} GB" if peak else "-"],
        *(
            [f"phase {shown(name)}", f"{seconds:,.0f} s, {seconds / wall_s:.0%}"]
            for name, seconds in sorted(phases.items(), key=lambda item: -item[1])
            if wall_s > 0
        ),
    ]
    return f"<section><h2>Cost</h2>{table(['', ''], rows, label='Of training')}</section>"


def _spec(spec: JobSpec, summary: Mapping[str, Any]) -> str:
    versions = summary.get("versions") or {}
    words = ", ".join(f"{name} {version}" for name, version in versions.items())
    text = json.dumps(scrubbed(spec), indent=2, ensure_ascii=False)
    commit = shown(summary.get("commit") or "not known")
    return (
        f"<section><h2>Spec and versions</h2><p>Commit {commit}. {shown(words)}</p>"
        f"<details><summary>job spec</summary><pre>{shown(text, most=60_000)}</pre></details>"
        "</section>"
    )


def _percent(line: Mapping[str, Any]) -> str:
    success, num_tasks = line.get("success"), int(line["num_tasks"])
    if success is None or not num_tasks:
        return "-"
    low, high = wilson(success, num_tasks)
    return f"{100 * success:.1f} % ({100 * low:.0f} to {100 * high:.0f})"


def _interval(estimate: Mapping[str, Any] | None, *, scale: float = 100.0) -> str:
    if not estimate:
        return "-"
    unit, digits = (" %", 1) if scale == 100.0 else ("", 3)
    mean = f"{scale * estimate['mean']:.{digits}f}{unit}"
    if estimate.get("low") is None:
        return mean
    low, high = scale * estimate["low"], scale * estimate["high"]
    return f"{mean} ({low:.{digits}f} to {high:.{digits}f})"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
