"""Policies that can play an agent's seat, and their names on the command line.

Owns the syntax of ``--policy``. Reads local folders; never loads weights and never opens a
connection.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.evaluation.documents import read_object
from troupe.ids import is_hub_id
from troupe.runtime.run_folder import EXPORT_FILE
from troupe.spec.issues import suggest
from troupe.spec.policy import TemplateValue

_FORMS = (
    "'scripted', 'random', a model folder or hub id, an adapter folder, a run folder, a folder of "
    "`troupe export`, "
    "'http://host:port/v1#MODEL' or 'openai:MODEL'"
)


@dataclass(frozen=True, slots=True)
class ScriptedRef:
    """The family's own player: ``demonstrate``, or ``random_action``; sees the true state."""

    kind: Literal["scripted", "random"]

    def __str__(self) -> str:
        return self.kind


@dataclass(frozen=True, slots=True)
class WeightsRef:
    """A transformers model (folder or hub id), with or without a PEFT adapter.

    ``chat_template_kwargs`` are the (variable, value) pairs of the chat template it learnt with.
    """

    model: str
    adapter: str = ""
    chat_template_kwargs: tuple[tuple[str, TemplateValue], ...] = ()

    def __str__(self) -> str:
        return f"{self.adapter} on {self.model}" if self.adapter else self.model


@dataclass(frozen=True, slots=True)
class ChatRef:
    """A model behind an OpenAI-compatible URL; without ``model`` the server's only one."""

    base_url: str
    model: str = ""

    def __str__(self) -> str:
        return f"{self.base_url}#{self.model}" if self.model else self.base_url


PolicyRef = ScriptedRef | WeightsRef | ChatRef


@dataclass(frozen=True, slots=True)
class RefOptions:
    """The values of ``--base`` and ``--base-url``; empty when not given."""

    base: str = ""
    base_url: str = ""


def read_ref(text: str, agent: str, options: RefOptions) -> PolicyRef:
    """The policy that ``text`` names for ``agent``; raises InvalidArgument- or NotFoundError."""
    if text in ("scripted", "random"):
        return ScriptedRef("scripted" if text == "scripted" else "random")
    if text.startswith(("http://", "https://")):
        url, _, model = text.partition("#")
        return _chat(url, model)
    if text.startswith("openai:"):
        return _openai(text, options)
    folder = Path(text).expanduser()
    if (folder / "spec.json").is_file():
        return _of_team(folder / "spec.json", folder / "policies", agent)
    if (folder / EXPORT_FILE).is_file():
        return _of_team(folder / EXPORT_FILE, folder, agent)
    if (folder / "adapter_config.json").is_file():
        return _adapter(folder, options)
    if (folder / "config.json").is_file():
        return WeightsRef(str(folder.resolve()))
    return _hub(text, folder)


def _openai(text: str, options: RefOptions) -> ChatRef:
    if not options.base_url:
        raise InvalidArgumentError(
            f"policy '{text}' names no server; add --base-url http://host:port/v1 or set "
            "TROUPE_OPENAI_BASE_URL"
        )
    return _chat(options.base_url, text.removeprefix("openai:"))


def _chat(url: str, model: str) -> ChatRef:
    try:
        urlsplit(url).port  # noqa: B018  # raises for one that is no port
    except ValueError as error:
        raise InvalidArgumentError(
            f"'{url}' is not a URL ({error}); give http://host:port/v1"
        ) from error
    return ChatRef(url.rstrip("/"), model)


def _adapter(folder: Path, options: RefOptions) -> WeightsRef:
    config = read_object(folder / "adapter_config.json")
    if not (folder / "adapter_model.safetensors").is_file():
        raise NotFoundError(
            f"adapter {folder} has no adapter_model.safetensors; save it with "
            "save_pretrained(..., safe_serialization=True)"
        )
    base = options.base or str(config.get("base_model_name_or_path") or "")
    if not base:
        raise InvalidArgumentError(
            f"adapter {folder} does not say which model it belongs to (base_model_name_or_path in "
            "its adapter_config.json is empty); name it with --base MODEL"
        )
    if _is_missing_path(base):
        raise NotFoundError(
            f"adapter {folder} belongs to '{base}', and there is no such model folder here; name "
            "where it is with --base MODEL"
        )
    return WeightsRef(_absolute(base), str(folder.resolve()))


def _of_team(seats: Path, weights: Path, agent: str) -> PolicyRef:
    """The exported weights of the policy that ``agent`` had in the run that wrote ``seats``."""
    folder, document = seats.parent, read_object(seats)
    agents: dict[str, Any] = document.get("agents") or {}
    if agent not in agents:
        raise InvalidArgumentError(
            f"run {folder} trained no agent '{agent}'; {suggest(agent, agents)} (give each seat "
            "its own policy with --policy agent=POLICY,agent=POLICY)"
        )
    policy = str(agents[agent]["policy"])
    merged = weights / policy / "merged"
    if not (merged / "config.json").is_file():
        raise NotFoundError(
            f"{folder} holds no exported model for agent '{agent}' ({merged}); evaluate a run "
            f"that has succeeded, or export policy '{policy}' of one of its checkpoints with "
            "`troupe export RUN --checkpoint STEP`"
        )
    policies: dict[str, Any] = document.get("policies") or {}
    variables = policies.get(policy, {}).get("chat_template_kwargs") or {}
    return WeightsRef(str(merged.resolve()), chat_template_kwargs=tuple(variables.items()))


def _hub(text: str, folder: Path) -> WeightsRef:
    if (folder / "team.json").is_file():
        raise InvalidArgumentError(f"'{text}' is a published team; give it with --team {text}")
    if models := sorted(path.parent for path in folder.glob("*/merged/config.json")):
        raise InvalidArgumentError(
            f"'{text}' holds models of several policies, and no {EXPORT_FILE} that gives each "
            f"agent one; give each seat its own: --policy {','.join(f'AGENT={m}' for m in models)}"
        )
    if folder.exists():
        raise InvalidArgumentError(
            f"policy '{text}' is neither a model (config.json), an adapter (adapter_config.json), "
            f"a run folder (spec.json) nor a folder of `troupe export` ({EXPORT_FILE}); give one "
            "of these"
        )
    if _is_missing_path(text) or not is_hub_id(text):
        raise NotFoundError(f"there is no policy '{text}' here; give {_FORMS}")
    hint = suggest(text, ("scripted", "random"))
    if hint.startswith("did you mean"):
        raise InvalidArgumentError(f"policy '{text}' is not known; {hint} Other forms: {_FORMS}")
    return WeightsRef(text)


def _is_missing_path(text: str) -> bool:
    """Whether ``text`` looks like a local path but leads to no model."""
    path = Path(text).expanduser()
    if (path / "config.json").is_file():
        return False
    looks_local = text.startswith((".", "/", "~")) or text.count("/") > 1
    return looks_local or path.exists() or path.parts[0] in ("models", "runs", "evals")


def _absolute(model: str) -> str:
    path = Path(model).expanduser()
    return str(path.resolve()) if (path / "config.json").is_file() else model
