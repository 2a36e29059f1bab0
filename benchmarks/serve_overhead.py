"""What `troupe serve` adds to a call of its engine.

Run: ``python -m benchmarks.serve_overhead [--quick]``. A team of two random adapters on a random
model is served in this process; the same greedy answers are drawn from the engine directly and by
HTTP, in turns, one request at a time, and streamed. The client is httpx in the same process: its
own cost is part of what is measured. The last line is one JSON object; exits 0 whatever it shows.
"""

import argparse
import asyncio
import json
import platform
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from benchmarks.random_model import save_random_model
from benchmarks.report import commit, goal, percentile
from troupe.candidates import GenerateRequest
from troupe.publishing.team_folder import open_team
from troupe.spec.job import SamplingSpec
from troupe.tasks.family import Message
from troupe.training.task import TASK_NAME
from troupe_router.rest.access.listen import bind
from troupe_router.rest.server import RestServer
from troupe_router.serve.endpoint import ChatEndpoint
from troupe_router.serve.models import AgentModel
from troupe_router.serve.settings import ServeSettings
from troupe_router.serve.team import opened_team

P50_GOAL_S = 0.010
TOKENS = 16
AGENTS = {"short": "w1 w2", "long": "w3 w4"}
TEXT = "w7 w8 w9"


def write_team(folder: Path) -> Path:
    """A run folder with two random adapters."""
    base = save_random_model(folder / "base")
    run = folder / "pair-1"
    for name in AGENTS:
        config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
        model.save_pretrained(run / "policies" / name / "adapter")
    task = {
        "name": TASK_NAME,
        "params": {
            "socket": "/nowhere",
            "agents": AGENTS,
            "num_train": 1,
            "num_held_out": 0,
            "digest": "0" * 64,
        },
    }
    document = {
        "name": "pair",
        "steps": 1,
        "task": task,
        "workflow": {"order": list(AGENTS), "max_turns": 1},
        "agents": {name: {"policy": name} for name in AGENTS},
        "policies": {name: {"model": str(base)} for name in AGENTS},
        "sampling": {"max_new_tokens": TOKENS},
        "eval": {"num_tasks": 0, "sampling": {"temperature": 0.0}},
    }
    (run / "spec.json").write_text(json.dumps(document))
    return run


async def measure(num_calls: int) -> dict[str, list[float]]:
    """Seconds of each call, by way."""
    with tempfile.TemporaryDirectory() as folder:
        team = open_team(write_team(Path(folder)))
        settings = ServeSettings(team=team.folder)
        async with opened_team(team, "cpu", request_timeout_s=60.0) as served:
            server = RestServer.of(ChatEndpoint(served, settings).app(), None, None)
            listener = bind("127.0.0.1:0", "")
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/chat/completions"
            serving = await server.begin(listener)
            try:
                async with httpx.AsyncClient(trust_env=False) as client:
                    agent = served.models["short"]
                    assert isinstance(agent, AgentModel)
                    return await _timed(ways(agent, client, url), num_calls)
            finally:
                await server.end(serving)


def ways(
    agent: AgentModel, client: httpx.AsyncClient, url: str
) -> dict[str, Callable[[], Awaitable[object]]]:
    """The same answer: from the engine, by HTTP, streamed."""
    prompt = (Message("system", AGENTS["short"]), Message("user", TEXT))
    sampling = SamplingSpec(temperature=0.0, max_new_tokens=TOKENS)
    request = GenerateRequest("short", 0, prompt, 1, sampling, 1)
    body: dict[str, Any] = {"model": "short", "messages": [{"role": "user", "content": TEXT}]}

    async def direct() -> object:
        return await agent.rollout.generate(request, timeout_s=60.0)

    async def whole() -> object:
        return (await client.post(url, json=body)).raise_for_status()

    async def streamed() -> object:
        return (await client.post(url, json={**body, "stream": True})).raise_for_status()

    return {"engine": direct, "endpoint": whole, "streamed": streamed}


async def _timed(
    calls: dict[str, Callable[[], Awaitable[object]]], num_calls: int
) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {way: [] for way in calls}
    for number in range(num_calls + 5):
        for way, call in calls.items():
            began = time.perf_counter()
            await call()
            if number >= 5:
                seconds[way].append(time.perf_counter() - began)
    return seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    num_calls = 100 if parser.parse_args().quick else 1000
    seconds = asyncio.run(measure(num_calls))
    p50 = {way: percentile(values, 0.5) for way, values in seconds.items()}
    p90 = {way: percentile(values, 0.9) for way, values in seconds.items()}
    for way in seconds:
        print(f"{way:10} p50 {1000 * p50[way]:6.2f} ms  p90 {1000 * p90[way]:6.2f} ms")
    added = p50["endpoint"] - p50["engine"]
    report = {
        "benchmark": "serve_overhead",
        "commit": commit(),
        "machine": platform.platform(),
        "n": num_calls,
        "tokens": TOKENS,
        "p50_s": p50,
        "p90_s": p90,
        "added_p50_s": added,
        "added_streamed_p50_s": p50["streamed"] - p50["engine"],
        "goals": [goal("added p50 at most 10 ms", added, P50_GOAL_S, added <= P50_GOAL_S)],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
