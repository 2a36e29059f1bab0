"""Model cards: what a person reads of a published team, with the metadata that the hub checks.

Pure text from the manifest and the run's own files. Says only what they say.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.evaluation.estimators import wilson
from troupe.evaluation.run_report import episode_reward, whole_lines
from troupe.evaluation.tables import table
from troupe.ids import is_hub_id
from troupe.publishing.manifest import TeamBase, TeamManifest
from troupe.publishing.scrub import without_paths
from troupe.spec.issues import issues_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """What cards say beside the manifest."""

    at: str
    """Repository of the hub that people load it from; "": the folder that they are in."""
    licence: str
    datasets: Sequence[str]
    has_curve: bool
    evals: Sequence[Mapping[str, Any]]
    """Held-out evaluations of the job: lines of metrics.jsonl."""
    compared: Sequence[Mapping[str, Any]]
    """Policies of an evaluation's report.json."""
    num_steps: int
    """Training steps that were made."""
    went_on: bool = False
    """Whether the run made steps after those of the weights."""

    @classmethod
    def of_run(
        cls,
        folder: Path,
        *,
        at: str,
        licence: str,
        datasets: Sequence[str],
        evaluation: Path | None,
        has_curve: bool,
        checkpoint: str = "",
    ) -> "CardFacts":
        """What a run folder, up to step ``checkpoint``, and the folder of an evaluation, hold."""
        all_lines = list(whole_lines(folder / "metrics.jsonl"))
        lines = all_lines
        if checkpoint.isdecimal():  # a line of training is of the step that begins there
            last = int(checkpoint)
            lines = [x for x in all_lines if x["step"] < last + (x["kind"] == "eval")]
        return cls(
            at=at,
            licence=licence,
            datasets=datasets,
            has_curve=has_curve,
            evals=[line for line in lines if line["kind"] == "eval"],
            compared=compared_policies(evaluation)[0] if evaluation else (),
            num_steps=sum(line["kind"] == "train" for line in lines),
            went_on=len(lines) < len(all_lines),
        )


def team_card(manifest: TeamManifest, facts: CardFacts) -> str:
    """README.md of the team."""
    seats = [
        [agent, seat.policy, _quoted(seat.instruction) or "in the task's own prompts"]
        for agent, seat in manifest.agents.items()
    ]
    policies = [
        [name, _kind(manifest, name), _base_word(manifest.bases[policy.base]), f"`{policy.path}`"]
        for name, policy in manifest.policies.items()
    ]
    order = ", ".join(manifest.workflow.order)
    parts = [
        _metadata(manifest, facts, list(manifest.policies)),
        f"# {manifest.name}: a team of {len(manifest.agents)}\n\n"
        f"Trained with Troupe {manifest.troupe_version} by reinforcement learning on the team's "
        f"own conversations (run `{manifest.job_id}`). `team.json` describes the whole team; "
        "`troupe eval --team` and `troupe serve` read it back and check every digest.",
        f"## Agents\n\nWorkflow `{manifest.workflow.kind}`: {order}; at most "
        f"{manifest.workflow.max_turns} turns.\n\n" + table(["agent", "policy", "told"], seats),
        "## Weights\n\n" + table(["policy", "trained", "base", "folder"], policies),
        _loading(manifest, next(iter(manifest.policies)), facts.at),
        *_common(manifest, facts, curve="curve.png"),
    ]
    return "\n\n".join(parts) + "\n"


def policy_card(manifest: TeamManifest, name: str, facts: CardFacts) -> str:
    """README.md of one policy."""
    agents = [agent for agent, seat in manifest.agents.items() if seat.policy == name]
    base = manifest.bases[manifest.policies[name].base]
    parts = [
        _metadata(manifest, facts, [name]),
        f"# {manifest.name}: policy `{name}`\n\nThe {_kind(manifest, name)} of "
        f"{_base_word(base)}, which plays {', '.join(f'`{agent}`' for agent in agents)} in the "
        f"team `{manifest.name}` (its card is two folders up).",
        _loading(manifest, name, facts.at),
        *_common(manifest, facts, curve="../../curve.png"),
    ]
    return "\n\n".join(parts) + "\n"


def _metadata(manifest: TeamManifest, facts: CardFacts, policies: Sequence[str]) -> str:
    """The YAML that the hub reads; only what is known is in it."""
    kinds = {manifest.policies[name].kind for name in policies}
    bases = [manifest.bases[manifest.policies[name].base] for name in policies]
    hub_ids = sorted({base.id for base in bases if not base.path and is_hub_id(base.id)})
    algorithm = str(manifest.spec.get("algorithm", {}).get("kind", ""))
    sees = any(manifest.policies[name].takes_images for name in policies)
    known: dict[str, Any] = {
        "license": facts.licence,
        "base_model": hub_ids,
        "base_model_relation": "adapter" if kinds == {"lora"} and hub_ids else "",
        "library_name": "peft" if "lora" in kinds else "transformers",
        "pipeline_tag": "image-text-to-text" if sees else "text-generation",
        "datasets": list(facts.datasets),
        "tags": ["troupe", "reinforcement-learning", "multi-agent", *filter(None, [algorithm])]
        + (["lora"] if "lora" in kinds else []),
    }
    text = yaml.safe_dump({k: v for k, v in known.items() if v}, sort_keys=False)
    return f"---\n{text}---"


def _loading(manifest: TeamManifest, name: str, at: str) -> str:
    """A few lines of plain transformers and peft."""
    policy = manifest.policies[name]
    loader = "AutoModelForImageTextToText" if policy.takes_images else "AutoModelForCausalLM"
    readers = {"tokenizer": "AutoTokenizer"}
    if policy.takes_images:
        readers = {"images": "AutoImageProcessor", **readers}
    classes = ", ".join(sorted([loader, *readers.values()]))
    base = manifest.bases[policy.base]
    where = _argument(at, policy.path)
    if policy.kind == "full":
        source = where
        lines = [
            f"from transformers import {classes}",
            f"model = {loader}.from_pretrained({where})",
        ]
    else:
        source = _argument(at, base.path) if base.path else f'"{base.id}"'
        if base.revision and not base.path:
            source += f', revision="{base.revision}"'
        lines = [
            "from peft import PeftModel",
            f"from transformers import {classes}",
            f"base = {loader}.from_pretrained({source})",
            f"model = PeftModel.from_pretrained(base, {where})",
        ]
    lines += [f"{word} = {reader}.from_pretrained({source})" for word, reader in readers.items()]
    code = "\n".join(lines)
    place = "" if at else "In the folder of the team:\n\n"
    return f"## Load it\n\n{place}```python\n{code}\n```"


def _argument(at: str, path: str) -> str:
    return f'"{at}", subfolder="{path}"' if at else f'"{path}"'


def _common(manifest: TeamManifest, facts: CardFacts, *, curve: str) -> list[str]:
    spec = json.dumps(manifest.spec, indent=2, sort_keys=True)
    of = " of the whole run" if facts.went_on else ""
    picture = f"![success, reward and time over the steps{of}]({curve})"
    return [
        "## How it was trained\n\n" + _training(manifest, facts),
        *([picture] if facts.has_curve else []),
        "## Evaluation\n\n" + _evaluation(manifest, facts),
        "## Limits\n\nThe weights were trained for this task, these seats and these prompts; "
        "nothing else was measured. Evaluations above are on tasks that were held out from "
        "training.",
        f"## Job\n\nTroupe {manifest.troupe_version}, commit `{manifest.commit or 'not known'}`, "
        "seed "
        f"{manifest.spec.get('seed')}.\n\n<details><summary>spec</summary>\n\n```json\n{spec}\n"
        "```\n\n</details>",
    ]


def _training(manifest: TeamManifest, facts: CardFacts) -> str:
    algorithm = manifest.spec.get("algorithm", {})
    cut = ""
    if manifest.checkpoint:
        cut = f"; these are the weights of checkpoint {manifest.checkpoint}"
        cut += ", the run went on" if facts.went_on else ""
    rows = [
        ["task", f"`{manifest.task.name}`" if manifest.task else "rows of a data set"],
        ["data", _data(manifest, facts)],
        ["algorithm", f"`{algorithm.get('kind')}`, {algorithm.get('group_size')} candidates"],
        ["steps", f"{facts.num_steps} of {manifest.spec.get('tasks_per_step')} tasks{cut}"],
        ["licence", facts.licence or "not stated; that of the base holds"],
    ]
    return table(["", ""], rows)


def _data(manifest: TeamManifest, facts: CardFacts) -> str:
    named = ", ".join(
        f"[{name}](https://huggingface.co/datasets/{name})" for name in facts.datasets
    )
    if manifest.rows is not None:
        rows = manifest.rows
        words = f"{rows.num_train} rows, sha256 `{rows.digest[:16]}`; the rows are not in here"
    else:
        params = manifest.task.params if manifest.task else {}
        words = f"`{json.dumps(params, sort_keys=True)}`"
    return f"{named}; {words}" if named else words


def _evaluation(manifest: TeamManifest, facts: CardFacts) -> str:
    split = manifest.spec.get("eval", {}).get("split")
    parts: list[str] = []
    if facts.evals:
        rows = [
            [str(line["step"]), *_success(line), _number(episode_reward(line))]
            for line in facts.evals
        ]
        head = ["after step", "success", "95 % interval", "tasks", "reward of an episode"]
        parts.append(f"Held-out tasks (split `{split}`), during the job:\n\n" + table(head, rows))
    if facts.compared:
        rows = [
            [without_paths(p["policy"]), *_estimate(p["success"]), str(p["num_tasks"])]
            for p in facts.compared
        ]
        head = ["team", "success", "95 % interval", "tasks"]
        parts.append("Compared by `troupe eval`:\n\n" + table(head, rows))
    return "\n\n".join(parts) or "This run was not evaluated on held-out tasks."


def _success(line: Mapping[str, Any]) -> tuple[str, str, str]:
    success, num_tasks = line.get("success"), int(line["num_tasks"])
    if success is None or not num_tasks:
        return "-", "-", str(num_tasks)
    low, high = wilson(success, num_tasks)
    return f"{success:.1%}", f"{low:.1%} to {high:.1%}", str(num_tasks)


def _estimate(estimate: Mapping[str, Any] | None) -> tuple[str, str]:
    if not estimate:
        return "-", "-"
    low, high = estimate.get("low"), estimate.get("high")
    interval = "-" if low is None or high is None else f"{low:.1%} to {high:.1%}"
    return f"{estimate['mean']:.1%}", interval


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _quoted(text: str) -> str:
    """An instruction in a table: one line, and no markup of its own."""
    line = " ".join(text.split()).replace("`", "'")
    return f"`{line[:300]}`" if line else ""


def _kind(manifest: TeamManifest, name: str) -> str:
    policy = manifest.policies[name]
    return f"LoRA adapter of rank {policy.lora_rank}" if policy.kind == "lora" else "full weights"


def _base_word(base: TeamBase) -> str:
    if base.path:
        return f"`{base.id}` (in `{base.path}`)"
    if not is_hub_id(base.id):
        return f"`{base.id}`"
    return f"[{base.id}](https://huggingface.co/{base.id})"


class _Estimate(BaseModel):
    mean: float
    low: float | None = None
    high: float | None = None


class _Compared(BaseModel):
    policy: str
    success: _Estimate | None
    team_return: _Estimate | None
    num_tasks: int


class _Difference(BaseModel):
    policy: str
    against: str
    difference: _Estimate


class _Report(BaseModel):
    """What cards and pages read of an evaluation's report.json."""

    policies: list[_Compared]
    comparisons: list[_Difference]


def compared_policies(
    folder: Path,
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Policies and their differences in the report of an evaluation's folder.

    Raises NotFoundError or InvalidArgumentError where there is no such report.
    """
    path = folder / "report.json"
    if not path.is_file():
        raise NotFoundError(
            f"there is no {path}; give the folder of a finished `troupe eval --out`"
        )
    try:
        report = _Report.model_validate_json(path.read_bytes()).model_dump()
    except ValidationError as error:
        issue = issues_of(error, _Report)[0]
        raise InvalidArgumentError(
            f"{path} is not the report of an evaluation ({issue.pointer or '/'}: {issue.message}); "
            "give the same `troupe eval --out` again, which writes it anew from its episodes"
        ) from error
    return report["policies"], report["comparisons"]
