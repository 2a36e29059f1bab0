"""Serves an environment of verifiers 0.4 on: a taskset, its ``Env`` and its agents.

Every agent plays by a chat loop in this process instead of a harness that is a program: it asks
the rollout's interception server, calls the tools that the task serves, and answers.
"""

import asyncio
import importlib
import importlib.util
import inspect
import itertools
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from packaged import environment_module
from rollouts import Rollout, Rollouts, key_of, serve_local_rows
from serve import MachineError, RefusedError

MACHINE = {"SandboxError", "InterceptionError", "ProviderError", "ToolsetError"}
BUILT_IN = "verifiers.v1.tasksets."
_ENDLESS = 3600 * 24 * 365


class LoadedTaskset:
    """One environment: its tasks, its agents and its rollouts."""

    def __init__(
        self,
        name: str,
        args: dict[str, Any],
        env: dict[str, Any],
        datasets: dict[str, str],
        max_rows: int,
        allows_runtime: bool = False,
    ) -> None:
        serve_local_rows(datasets)
        if importlib.util.find_spec(BUILT_IN + name.replace("-", "_")) is None:
            environment_module(name)
        v1 = importlib.import_module("verifiers.v1")
        loaders = importlib.import_module("verifiers.v1.utils.loaders")
        self._env = _environment(name, args, env, v1, loaders)
        self._agents = list(self._env._agent_specs)
        refuse_judges(name, self._env, v1)
        tasks = list(itertools.islice(iter(self._env.taskset), max_rows))
        self._tasks = [(_key(task), task) for task in tasks]
        if tasks and not allows_runtime:
            refuse_programs(name, tasks[0])
        self._lives: dict[str, tuple[Rollout, str]] = {}
        self._context = v1.ModelContext(model="policy", client=v1.EvalClientConfig())
        _play_here(self._parked)
        self._rollouts = Rollouts(self._play)
        self._stack = AsyncExitStack()
        self._rollouts.loop.run_until_complete(self._stack.enter_async_context(self._env.serving()))
        self.answer, self.drop = self._rollouts.answer, self._rollouts.drop

    def describe(self) -> dict[str, Any]:
        """Agents, rewards that their task declares, and the tasks by their keys."""
        hooks = self._tasks[0][1].hooks("reward") if self._tasks else []
        rewards = {fn.__name__: float(getattr(fn, "_vf_weight", 1.0)) for fn in hooks}
        return {
            "agents": self._agents,
            "rewards": dict.fromkeys(self._agents, rewards),
            "rows": {"train": [key for key, _ in self._tasks]},
        }

    def start(self, pool: str, index: int, seed: int) -> dict[str, Any]:
        """Begin a rollout of a task."""
        return self._rollouts.start(self._tasks[index][1], seed)

    async def _play(self, life: Rollout, task: Any) -> dict[str, Any]:
        names: list[str] = []

        def began(trace: Any) -> None:
            names.append(trace.id)
            self._lives[trace.id] = (life, trace.agent.name)

        try:
            episode = await self._env.run_episode(task, self._context, on_trace=began)
        finally:
            for name in names:
                self._lives.pop(name, None)
        return _ended(episode)

    async def _parked(self, session_id: str, body: dict[str, Any]) -> dict[str, Any]:
        life, agent = self._lives[session_id]
        return await life.ask(agent, body)


def opened(**settings: Any) -> LoadedTaskset:
    """The environment; see ``LoadedTaskset``."""
    return LoadedTaskset(**settings)


def refuse_judges(name: str, env: Any, v1: Any) -> None:
    """Refuse a task that asks a model to judge, by the name of the field that says so."""
    config = env.config.taskset.task if hasattr(env.config.taskset, "task") else None
    for field, value in config or ():
        judges = value if isinstance(value, list) else [value]
        if any(isinstance(judge, v1.JudgeConfig) for judge in judges):
            raise RefusedError(
                f"'{name}' asks a model to judge (its task's '{field}'); Troupe pays what a "
                "function computes"
            )


def refuse_programs(name: str, task: Any) -> None:
    """Refuse a task whose rewards start programs, which may be what the model wrote."""
    for fn in [*task.hooks("reward"), *task.hooks("metric")]:
        if "runtime" in inspect.signature(fn).parameters:
            raise RefusedError(
                f"'{name}' runs programs to judge (its '{fn.__name__}'), here without a sandbox; "
                "the operator allows that with TROUPE_IMPORT_ALLOWS_RUNTIME"
            )


def _environment(name: str, args: Any, env: dict[str, Any], v1: Any, loaders: Any) -> Any:
    try:
        taskset = {**args, "id": name}
        config_type = loaders.env_config_type(name, env.get("id") or "")
        seats = {
            agent: {**env.get(agent, {}), "harness": {"id": "null"}, "runtime": _here(env, agent)}
            for agent, field in config_type.model_fields.items()
            if isinstance(field.default, v1.AgentConfig)
        }
        return loaders.load_environment(
            config_type.model_validate({**env, "taskset": taskset, **seats})
        )
    except (TypeError, ValueError, AttributeError, ModuleNotFoundError) as error:
        raise RefusedError(f"'{name}' cannot be loaded: {error}") from None


def _here(env: dict[str, Any], agent: str) -> dict[str, Any]:
    runtime = env.get(agent, {}).get("runtime", {"type": "subprocess"})
    if runtime.get("type") != "subprocess":
        raise RefusedError(f"agent '{agent}' wants the runtime {runtime}: only subprocess is here")
    return runtime


def _ended(episode: Any) -> dict[str, Any]:
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    machine = [error for error in errors if error.type in MACHINE]
    if machine:
        raise MachineError(f"{machine[0].type}: {machine[0].message}"[:1000])
    agents: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(trace.agent.name for trace in episode.traces):
        traces = [trace for trace in episode.traces if trace.agent.name == name]
        paid = [{k: r for k, r in trace.rewards.items() if r is not None} for trace in traces]
        terms = {
            key: sum(p[key].score for p in paid if key in p) / len(paid) for p in paid for key in p
        }
        agents[name] = {
            "total": sum(r.value for p in paid for r in p.values()) / len(paid),
            "terms": terms,
        }
    failure = f"{errors[0].type}: {errors[0].message}"[:500] if errors else None
    return {"agents": agents} if failure is None else {"agents": {}, "failure": failure}


def _key(task: Any) -> str:
    return key_of(task.data.model_dump(mode="json", exclude={"idx"}))


def _play_here(parked: Any) -> None:
    """Let agents chat in this process, and their requests wait in it."""
    clients = importlib.import_module("verifiers.v1.clients.eval")
    null = importlib.import_module("verifiers.v1.harnesses.null.harness").NullHarness
    runtimes = importlib.import_module("verifiers.v1.runtimes.subprocess").SubprocessRuntime
    result = importlib.import_module("verifiers.v1.runtimes").ProgramResult

    async def get_response(
        self: Any,
        dialect: Any,
        body: Any,
        sampling: Any,
        session_id: Any = None,
        *_: Any,
        **__: Any,
    ) -> Any:
        document = await parked(session_id, body)
        response = dialect.parse_response(dialect.validate_response(document))
        response.raw = document
        return response

    async def setup(self: Any, runtime: Any) -> None:
        return None

    async def launch(
        self: Any,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: Any,
        data: Any,
        tool_interception_url: str | None = None,
    ) -> Any:
        system, prompt = self.resolve_prompt(data)
        await _chat(endpoint, secret, ctx.model, mcp_urls, system, prompt)
        return result(exit_code=0, stdout="", stderr="")

    async def prepare_uv_script(self: Any, script: Any, *_: Any, **__: Any) -> list[str]:
        """A script of the task runs by this interpreter: its packages must be installed here."""
        text = script if isinstance(script, bytes) else str(script).encode()
        path = Path(self.workdir) / f"script_{key_of(text.decode())}.py"
        await asyncio.to_thread(path.write_bytes, text)
        return [sys.executable, str(path)]

    clients.EvalClient.get_response = get_response
    null.setup, null.launch = setup, launch
    runtimes.prepare_uv_script = prepare_uv_script


async def _chat(
    endpoint: str, secret: str, model: str, mcp_urls: Any, system: str | None, prompt: Any
) -> None:
    """One segment of a conversation: ask, call tools, ask again, until a plain answer."""
    httpx = importlib.import_module("httpx")
    wire = importlib.import_module("verifiers.v1.dialects.chat").message_to_wire
    mcp = importlib.import_module("verifiers.v1.harnesses.utils.mcp")
    messages = [{"role": "system", "content": system}] if system else []
    if isinstance(prompt, str):
        messages.append({"role": "user", "content": prompt})
    else:
        messages += [wire(message) for message in prompt or ()]
    headers = {"Authorization": f"Bearer {secret}"}
    async with AsyncExitStack() as stack:
        # A call waits for a policy, which may take as long as it takes. Certificates, which take
        # 30 ms to read, are of no use on loopback.
        client = await stack.enter_async_context(
            httpx.AsyncClient(timeout=_ENDLESS, headers=headers, trust_env=False, verify=False)
        )
        served = {name: {"url": url} for name, url in (mcp_urls or {}).items()}
        tools, dispatch, servers = await mcp.connect_mcp({"mcpServers": served}, stack)
        while True:
            body = {"model": model, "messages": messages, **({"tools": tools} if tools else {})}
            response = await client.post(f"{endpoint}/chat/completions", json=body)
            response.raise_for_status()
            message = response.json()["choices"][0]["message"]
            messages.append(message)
            if not message.get("tool_calls"):
                return
            for call in message["tool_calls"]:
                told = await _called(call, mcp, servers, dispatch)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": told})


async def _called(call: Any, mcp: Any, servers: Any, dispatch: Any) -> Any:
    name = call["function"]["name"]
    if name not in dispatch:
        return f"error: unknown tool {name!r}"
    try:
        arguments = json.loads(call["function"]["arguments"] or "{}")
        return await mcp.call_mcp(servers, dispatch, name, arguments)
    except (ValueError, TypeError) as error:
        return f"error: {error}"
