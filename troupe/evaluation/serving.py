"""Opens what a team needs to play: an engine with its weights, and chat server connections.

Owns their lifetime. The engines of a job's rollouts serve the weights as version 0.
"""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError

from troupe import plugins
from troupe.clients.chat import ChatClient
from troupe.episodes.local import EngineRollout, ScriptedRollout
from troupe.episodes.ports import RolloutPort
from troupe.errors import InvalidArgumentError, TroupeError, WeightsRejectedError
from troupe.evaluation.bare import stage_bare
from troupe.evaluation.players import ChatPlayer
from troupe.evaluation.refs import ChatRef, ScriptedRef, WeightsRef
from troupe.evaluation.teams import Team
from troupe.runtime.engines.engine import Engine, StagedWeights
from troupe.runtime.weights.manifest import parse_adapter_config
from troupe.spec.issues import suggest
from troupe.spec.policy import PolicySpec
from troupe.tasks.family import TaskFamily

_PROBE_S = 10.0


@asynccontextmanager
async def opened(
    team: Team,
    family: TaskFamily,
    *,
    engine: str,
    dtype: str,
    api_key: SecretStr,
    max_connections: int,
) -> AsyncGenerator[dict[str, RolloutPort]]:
    """The seats of ``team``, ready to play; closes everything on exit.

    Raises InvalidArgumentError or NotFoundError for what cannot be served, UnavailableError for a
    server that does not answer.
    """
    async with AsyncExitStack() as stack:
        seats: dict[str, RolloutPort] = {}
        chats: dict[ChatRef, ChatPlayer] = {}
        names = _served_names(team)
        served: Engine | None = None
        if names:
            served = await stack.enter_async_context(
                serving_engine(names, engine, dict.fromkeys(names, dtype))
            )
        for agent, ref in team.seats.items():
            if isinstance(ref, ScriptedRef):
                seats[agent] = ScriptedRollout(family, ref.kind)
            elif isinstance(ref, WeightsRef):
                assert served is not None
                seats[agent] = EngineRollout(served, names[ref])
            else:
                if ref not in chats:
                    chats[ref] = await _chat(stack, ref, api_key, max_connections)
                seats[agent] = chats[ref]
        yield seats


def _served_names(team: Team) -> dict[WeightsRef, str]:
    refs = dict.fromkeys(ref for ref in team.seats.values() if isinstance(ref, WeightsRef))
    return {ref: f"policy-{i}" for i, ref in enumerate(refs)}


async def _chat(
    stack: AsyncExitStack, ref: ChatRef, api_key: SecretStr, max_connections: int
) -> ChatPlayer:
    client = ChatClient(
        ref.base_url, api_key=api_key.get_secret_value(), max_connections=max_connections
    )
    stack.push_async_callback(client.close)
    models = await client.models(timeout_s=_PROBE_S)
    if not ref.model and len(models) == 1:
        return ChatPlayer(client, models[0])
    if ref.model not in models:
        problem = f"has no model '{ref.model}'" if ref.model else "has several models"
        raise InvalidArgumentError(
            f"{ref.base_url} {problem}; {suggest(ref.model, models)} (give URL#MODEL)"
        )
    return ChatPlayer(client, ref.model)


@asynccontextmanager
async def serving_engine(
    names: Mapping[WeightsRef, str], engine_name: str, dtypes: Mapping[WeightsRef, str]
) -> AsyncGenerator[Engine]:
    """An engine that serves each of ``names`` as version 0 of the policy of that name.

    Raises InvalidArgumentError for what cannot be served.
    """
    engine = _make_engine(engine_name)
    try:
        with tempfile.TemporaryDirectory(prefix="troupe-weights-") as folder:
            policies: dict[str, PolicySpec] = {}
            for ref, name in names.items():
                with _file_errors(ref):
                    policies[name] = _policy(ref, dtypes[ref])
            await engine.start(policies)
            for ref, name in names.items():
                with _file_errors(ref):
                    await _stage(engine, ref, name, Path(folder))
                await engine.activate(name, 0)
            yield engine
    finally:
        await asyncio.shield(engine.stop())


@contextmanager
def _file_errors(ref: WeightsRef) -> Generator[None]:
    """Damaged files of ``ref`` as InvalidArgumentError: they are no better at the next try."""
    try:
        yield
    except (WeightsRejectedError, FileNotFoundError, UnicodeDecodeError, ValidationError) as error:
        raise InvalidArgumentError(
            f"the weights in {ref.adapter or ref.model} can't be loaded: {error}"
        ) from error


def _make_engine(name: str) -> Engine:
    """The engine called ``name``, made like the rollout service does, with its own settings."""
    try:
        return plugins.load(plugins.ENGINES, name, pointer="/engine")()
    except ValidationError as error:
        wrong = "; ".join(
            f"TROUPE_ROLLOUT_{'_'.join(map(str, item['loc'])).upper()}: {item['msg']}"
            for item in error.errors()
        )
        raise InvalidArgumentError(f"the settings of engine '{name}' are wrong: {wrong}") from error
    except ImportError as error:
        raise TroupeError(
            f"engine '{name}' cannot run here ({error}); install it: pip install 'troupe[rollout]'"
        ) from error


async def _stage(engine: Engine, ref: WeightsRef, name: str, folder: Path) -> None:
    if not ref.adapter:
        await stage_bare(engine, name, ref.model, folder)
        return
    adapter = Path(ref.adapter)
    config = (adapter / "adapter_config.json").read_text("utf-8")
    weights = adapter / "adapter_model.safetensors"
    await engine.stage(StagedWeights(name, 0, "lora", weights, config))


def _policy(ref: WeightsRef, dtype: str) -> PolicySpec:
    """The policy that the engine reserves memory for: the adapter's rank and targets, or rank 1."""
    lora: dict[str, Any] = {"kind": "lora", "rank": 1, "alpha": 1.0}
    if ref.adapter:
        text = (Path(ref.adapter) / "adapter_config.json").read_text("utf-8")
        config = parse_adapter_config(text)
        targets = config.get("target_modules")
        lora |= {"rank": int(config["r"]), "alpha": float(config["lora_alpha"])}
        if isinstance(targets, list):
            lora["targets"] = targets
    return PolicySpec.model_validate(
        {
            "model": ref.model,
            "dtype": dtype,
            "train": lora,
            "chat_template_kwargs": dict(ref.chat_template_kwargs),
        }
    )
