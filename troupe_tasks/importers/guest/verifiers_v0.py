"""Serves an environment of verifiers before 0.4: what its ``load_environment`` gives."""

import importlib
from typing import Any

from packaged import environment_module
from rollouts import Rollout, Rollouts, key_of, serve_local_rows
from serve import MachineError, RefusedError

AGENT = "agent"
MACHINE = ("SandboxError", "InfraError", "ModelError", "TunnelError")


class LoadedEnvironment:
    """One environment: its rows, its rewards and its rollouts."""

    def __init__(
        self, name: str, args: dict[str, Any], datasets: dict[str, str], max_rows: int, **_: Any
    ) -> None:
        serve_local_rows(datasets)
        module = environment_module(name)
        make = getattr(module, "load_environment", None)
        if make is None:
            raise RefusedError(f"'{name}' has no load_environment; is it for verifiers 0.4?")
        try:
            self._env = make(**args)
        except TypeError as error:
            raise RefusedError(f"'{name}' refuses its arguments {args}: {error}") from None
        refuse_judges(name, self._env)
        self._client = parked_client()
        self._pools = pools(self._env, max_rows)
        self._rollouts = Rollouts(self._play)
        self.start, self.drop = self._start, self._rollouts.drop
        self.answer = self._rollouts.answer

    def describe(self) -> dict[str, Any]:
        """Agents, the names and weights of rewards, and the rows of each pool by their keys."""
        rubric = self._env.rubric
        names, weights = rubric._get_reward_func_names(), rubric._get_reward_weights()
        paired = dict(zip(names, weights, strict=False)) if len(names) == len(weights) else {}
        keys = {pool: [key for key, _ in rows] for pool, rows in self._pools.items()}
        return {
            "agents": [AGENT],
            "rewards": {AGENT: {name: float(paired.get(name, 1.0)) for name in names}},
            "rows": keys,
        }

    def _start(self, pool: str, index: int, seed: int) -> dict[str, Any]:
        return self._rollouts.start(self._pools[pool][index][1], seed)

    async def _play(self, life: Rollout, row: Any) -> dict[str, Any]:
        client = self._client(life)
        state = await self._env.rollout(dict(row), client, "policy", {})
        error = state.get("error")
        if error is not None:
            if type(error).__name__ in MACHINE or isinstance(error.__cause__, OSError):
                raise MachineError(f"{type(error).__name__}: {error}")
            return {"failure": f"{type(error).__name__}: {error}"[:500]}
        await self._env.rubric.score_rollout(state)
        metrics = {name: float(paid) for name, paid in (state.get("metrics") or {}).items()}
        return {
            "agents": {AGENT: {"total": float(state["reward"] or 0.0), "terms": metrics}},
            "stop": str(state.get("stop_condition")),
        }


def opened(**settings: Any) -> LoadedEnvironment:
    """The environment; see ``LoadedEnvironment``."""
    return LoadedEnvironment(**settings)


def parked_client() -> Any:
    """A class of clients that let a rollout's requests wait."""
    try:
        clients = importlib.import_module("verifiers.clients")
        base: Any = clients.OpenAIChatCompletionsClient
    except (ImportError, AttributeError):
        raise RefusedError(
            "this release of verifiers has no clients of its own; use 0.1.14 on"
        ) from None
    completion = importlib.import_module("openai.types.chat").ChatCompletion

    class ParkedClient(base):
        def __init__(self, life: Rollout) -> None:
            super().__init__(None)
            self._life = life

        async def get_native_response(
            self, prompt: Any, model: str, sampling_args: Any, tools: Any = None, **_: Any
        ) -> Any:
            body = {"model": model, "messages": [_plain(message) for message in prompt]}
            if tools:
                body["tools"] = [_plain(tool) for tool in tools]
            return completion.model_validate(await self._life.ask(AGENT, body))

    return ParkedClient


def pools(env: Any, max_rows: int) -> dict[str, list[tuple[str, Any]]]:
    """Rows by their keys: those to train on, and the environment's own for evaluation."""
    found: dict[str, list[tuple[str, Any]]] = {}
    if getattr(env, "dataset_source", None) is not None or env.dataset is not None:
        found["train"] = _rows(env.get_dataset(), max_rows)
    if getattr(env, "eval_dataset_source", None) is not None or env.eval_dataset is not None:
        found["test" if found else "train"] = _rows(env.get_eval_dataset(), max_rows)
    return found


def refuse_judges(name: str, env: Any) -> None:
    """Refuse what cannot be paid for one rollout by a function alone."""
    for rubric in _rubrics(env):
        if any("JudgeRubric" in base.__name__ for base in type(rubric).__mro__):
            model = getattr(rubric, "judge_model", "a model")
            raise RefusedError(
                f"'{name}' is scored by {type(rubric).__name__}, which asks {model} to judge; "
                "Troupe pays what a function computes"
            )
        if rubric.has_group_rewards:
            names = [func.__name__ for func in rubric._get_group_reward_funcs()]
            raise RefusedError(
                f"'{name}' compares rollouts with each other ({', '.join(names)}); Troupe judges "
                "one at a time"
            )


def _rubrics(env: Any) -> list[Any]:
    found = [env.rubric]
    for rubric in found:
        found += getattr(rubric, "rubrics", [])
        for inner in getattr(rubric, "env_map", {}).values():
            found.append(inner.rubric)
    return found


def _rows(dataset: Any, max_rows: int) -> list[tuple[str, Any]]:
    rows = [dataset[i] for i in range(min(max_rows, len(dataset)))]
    return [(key_of({k: v for k, v in r.items() if k != "example_id"}), r) for r in rows]


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(exclude_none=True) if dump is not None else value
