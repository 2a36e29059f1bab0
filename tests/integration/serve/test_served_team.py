"""`troupe serve` as a process: agents and the team answer what an evaluation answers."""

import json
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from peft import PeftModel
from served_team import INSTRUCTIONS, PAIR, Served, asked, serving, write_team
from transformers import AutoModelForCausalLM, AutoTokenizer

from troupe.clients.rest.keys import add_key
from troupe.episodes.build import load_parts
from troupe.episodes.local import EngineRollout, LocalEnv
from troupe.evaluation.plan import EvalPlan, SampleKey
from troupe.evaluation.players import TeamPlayer
from troupe.evaluation.refs import WeightsRef
from troupe.evaluation.serving import serving_engine
from troupe.spec import load_spec
from troupe.tasks.family import Task
from troupe.tasks.optional import request_task
from troupe.tasks.registry import load_family
from troupe.training.task import RowTasks

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning"),
]
TEXT = "w7 w8 w9"


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_team(tmp_path_factory.mktemp("team") / "pair-1")


@pytest.fixture(scope="module")
def served(team: Path) -> Iterator[Served]:
    with serving(team) as endpoint:
        yield endpoint


def answer(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]["content"]


def test_agent_when_asked_then_says_what_plain_peft_says(team: Path, served: Served) -> None:
    texts = [answer(served.post(asked(name, TEXT))) for name in INSTRUCTIONS]
    assert texts == [with_peft(team, name) for name in INSTRUCTIONS]
    assert texts[0] != texts[1]


def with_peft(team: Path, agent: str) -> str:
    """Greedy text of transformers and peft, under the agent's instruction."""
    base = team.parent / "base"
    tokenizer: Any = AutoTokenizer.from_pretrained(base)
    plain = AutoModelForCausalLM.from_pretrained(base)
    model: Any = PeftModel.from_pretrained(plain, team / "policies" / agent / "adapter")
    messages = [
        {"role": "system", "content": INSTRUCTIONS[agent]},
        {"role": "user", "content": TEXT},
    ]
    ids = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=False
    )
    with torch.no_grad():
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=8
        )
    return tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)


async def test_team_when_asked_then_plays_as_an_evaluation_does(
    team: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = served.post(asked("pair", TEXT)).json()
    played = await evaluated(team, monkeypatch)
    assert [step["text"] for step in document["troupe"]["steps"]] == list(played.values())
    assert [step["agent"] for step in document["troupe"]["steps"]] == list(played)
    assert document["choices"][0]["message"]["content"] == played["long"]
    assert document["usage"]["total_tokens"] > document["usage"]["completion_tokens"] > 0


async def evaluated(team: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What each agent writes when the player of evaluations plays the same task."""
    spec = load_spec(team / "spec.json")
    family = load_family(spec.task.name, spec.task.params)

    def task(tasks: RowTasks, split: str, index: int) -> Task:
        return request_task(family, TEXT)

    monkeypatch.setattr(RowTasks, "task", task)
    plan = EvalPlan(
        task=spec.task,
        workflow=spec.workflow,
        num_tasks=1,
        sampling={"temperature": 0.0, "max_new_tokens": 8},
    )
    refs = {
        WeightsRef(policy.model, str(team / "policies" / name / "adapter")): name
        for name, policy in spec.policies.items()
    }
    async with serving_engine(refs, "cpu", dict.fromkeys(refs, "float32")) as engine:
        seats = TeamPlayer({name: EngineRollout(engine, name) for name in spec.agents})
        with LocalEnv(family) as env:
            player = load_parts(plan.job_spec(), family).player(seats, env)
            episode = (await player.play(plan.ticket(SampleKey(0, 0)))).episode
    return {group.agent: group.candidates[0].text for group in episode.groups}


def events(response: httpx.Response) -> list[dict[str, Any]]:
    lines = [line for line in response.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_team_when_streamed_then_each_step_is_an_event_and_the_content_is_the_last_word(
    served: Served,
) -> None:
    whole = served.post(asked("pair", TEXT)).json()
    options = {"include_usage": True}
    chunks = events(served.post(asked("pair", TEXT, stream=True, stream_options=options)))
    steps = [chunk["troupe"]["step"] for chunk in chunks if "troupe" in chunk]
    assert steps == whole["troupe"]["steps"]
    content = "".join(
        choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]
    )
    assert content == whole["choices"][0]["message"]["content"]
    assert chunks[-1]["usage"] == whole["usage"]
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_agent_when_the_client_has_a_system_message_then_it_replaces_the_instruction(
    served: Served,
) -> None:
    own = [
        {"role": "system", "content": INSTRUCTIONS["short"]},
        {"role": "user", "content": TEXT},
    ]
    given = served.post({"model": "short", "messages": own}).json()
    assert given["usage"] == served.post(asked("short", TEXT)).json()["usage"]
    other = [{"role": "system", "content": "w10 w11 w12 w13"}, own[1]]
    changed = served.post({"model": "short", "messages": other}).json()
    assert changed["usage"]["prompt_tokens"] != given["usage"]["prompt_tokens"]


def test_agent_when_sampled_with_a_seed_then_repeats_and_n_choices_differ(served: Served) -> None:
    body = asked("long", TEXT, temperature=1.0, seed=5, n=4)
    first, again = (served.post(body).json()["choices"] for _ in range(2))
    assert first == again
    assert [choice["index"] for choice in first] == [0, 1, 2, 3]
    assert len({choice["message"]["content"] for choice in first}) > 1


def test_agent_when_cut_off_then_the_reason_is_length_and_stop_texts_are_left_out(
    served: Served,
) -> None:
    [choice] = served.post(asked("long", TEXT, max_tokens=2)).json()["choices"]
    assert choice["finish_reason"] == "length"
    text = answer(served.post(asked("long", TEXT)))
    assert answer(served.post(asked("long", TEXT, stop=text[-3:]))) == text[: text.find(text[-3:])]


def test_models_when_listed_then_the_team_comes_first_with_its_agents(served: Served) -> None:
    data = served.get("/v1/models").json()["data"]
    assert [model["id"] for model in data] == ["pair", "short", "long"]
    assert data[0]["troupe"] == {"kind": "team", "agents": ["short", "long"]}
    assert data[1]["troupe"]["instruction"] == INSTRUCTIONS["short"]
    assert served.get("/v1/models/long").json() == data[2]


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"model": "shrt"}, 404, "model"),
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, 400, "messages"),
        ({"model": "sh\ud800rt"}, 400, "model"),
        ({"\ud800": 1}, 400, "\\ud800"),
        ({"logprobs": True}, 400, "logprobs"),
        ({"frequency_penalty": 0.5}, 400, "frequency_penalty"),
        ({"invented": 1}, 400, "invented"),
        ({"n": 17}, 400, "n"),
        ({"temperature": -1}, 400, "temperature"),
        ({"tool_choice": "required"}, 400, "tool_choice"),
        ({"stop": ["a", "b", "c", "d", "e"]}, 400, "stop"),
        ({"model": "pair", "n": 2}, 400, "n"),
        ({"model": "pair", "stop": "x"}, 400, "stop"),
        ({"model": "pair", "tools": [{"function": {"name": "f"}}]}, 400, "tools"),
    ],
)
def test_request_when_it_asks_for_what_is_not_served_then_the_field_is_named(
    served: Served, change: dict[str, Any], status: int, param: str
) -> None:
    body = json.dumps({**asked("short", TEXT), **change})
    response = httpx.post(f"{served.url}/chat/completions", content=body, timeout=60)
    assert response.status_code == status
    error = response.json()["error"]
    assert error["param"] == param
    assert error["message"]


def test_request_when_its_host_is_not_known_then_the_setting_of_the_endpoint_is_named(
    served: Served,
) -> None:
    response = served.get("/v1/models", headers={"Host": "served.example.org"})
    assert response.status_code == 403
    assert "TROUPE_SERVE_HOSTS" in response.json()["error"]["message"]


def test_request_when_it_fills_the_context_then_the_code_is_that_of_openai(served: Served) -> None:
    body = asked("short", "R " * 20_000)
    response = httpx.post(f"{served.url}/chat/completions", json=body, timeout=60)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
    assert "Shorten the prompt" in error["message"]


def test_metrics_when_requests_were_answered_then_they_are_counted(served: Served) -> None:
    served.post(asked("short", TEXT))
    text = served.get("/metrics").text
    assert 'troupe_serve_requests_total{code="200",model="short"}' in text
    assert served.get("/readyz").json() == {"status": "ok"}


def test_queue_when_it_is_full_then_429_and_a_drain_answers_what_was_asked(team: Path) -> None:
    with serving(team, max_running="1", max_waiting="1", grace_s="20") as endpoint:
        statuses: list[int] = []
        body = asked("pair", TEXT, max_tokens=400, temperature=1.0)

        def ask() -> None:
            statuses.append(endpoint.post(body).status_code)

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        while 429 not in statuses:
            threads[0].join(0.01)
        endpoint.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert endpoint.process.wait(timeout=30) == 0
    assert set(statuses) <= {200, 429, 503}
    assert 200 in statuses


def test_keys_when_they_are_asked_for_then_a_request_needs_one_that_may_submit(
    team: Path, tmp_path: Path
) -> None:
    file = tmp_path / "keys.json"
    reader = add_key(file, "reader", scopes=("read",))
    writer = add_key(file, "writer", scopes=("submit",))
    with serving(team, "--api-keys", str(file)) as endpoint:
        body = asked("short", TEXT)
        nobody = endpoint.post(body)
        assert (nobody.status_code, nobody.json()["error"]["code"]) == (401, "invalid_api_key")
        for key, status in ((reader, 403), (writer, 200)):
            headers = {"Authorization": f"Bearer {key}"}
            assert endpoint.post(body, headers=headers).status_code == status
        assert endpoint.get("/livez").status_code == 200


def test_published_team_when_served_then_says_what_the_run_says(
    team: Path, served: Served, tmp_path: Path
) -> None:
    folder = published(team, tmp_path)
    with serving(folder) as endpoint:
        for name in ("pair", "short", "long"):
            body = asked(name, TEXT)
            assert answer(endpoint.post(body)) == answer(served.post(body))


@pytest.mark.parametrize("is_there", [True, False])
def test_serve_when_the_path_holds_no_team_then_exits_2(tmp_path: Path, is_there: bool) -> None:
    done = troupe("serve", str(tmp_path if is_there else tmp_path / "nope"))
    assert done.returncode == 2
    assert "give a folder that `troupe publish` wrote" in done.stderr


def test_published_team_when_a_byte_of_an_adapter_changed_then_does_not_start(
    team: Path, tmp_path: Path
) -> None:
    folder = published(team, tmp_path)
    weights = folder / "policies" / "long" / "adapter_model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    done = troupe("serve", str(folder), "--port", "0")
    assert done.returncode == 3
    assert "not the file of the manifest" in done.stderr


@pytest.mark.parametrize("part", ["task", "task of rows", "workflow"])
def test_published_team_when_it_names_code_then_none_is_loaded(
    team: Path, tmp_path: Path, part: str
) -> None:
    folder = published(team, tmp_path)
    code, marker = tmp_path / "code.py", tmp_path / "loaded"
    code.write_text(f"open({str(marker)!r}, 'w')\nclass Code: ...\n", encoding="utf-8")
    manifest = json.loads((folder / "team.json").read_text("utf-8"))
    if part == "task":
        manifest |= {"task": {"name": f"{code}:Code", "params": {}}, "rows": None}
    elif part == "task of rows":  # ours, but with a socket that the manifest chose
        manifest |= {"task": PAIR, "rows": None}
    else:
        manifest["workflow"]["kind"] = f"{code}:Code"
    (folder / "team.json").write_text(json.dumps(manifest), encoding="utf-8")
    with serving(folder) as endpoint:
        refused = endpoint.post(asked("pair", TEXT))
        assert refused.status_code == 400
        assert "no published team may load" in refused.json()["error"]["message"]
        assert endpoint.post(asked("short", TEXT)).status_code == 200
    assert not marker.exists()


def published(team: Path, target: Path) -> Path:
    done = troupe("publish", str(team), "--to", f"folder:{target / 'out'}")
    assert done.returncode == 0, done.stderr
    return target / "out"


def troupe(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "troupe.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize(
    "payload", ["None", "Task('t', 'test', 0, b'[]')", "__import__('sys').exit(0)"]
)
def test_task_when_its_request_task_is_wrong_then_the_agents_still_answer(
    team: Path, tmp_path: Path, payload: str
) -> None:
    with serving(own_task(team, tmp_path, f"request_task(self, text): return {payload}")) as served:
        refused = served.post(asked("pair", TEXT))
        assert refused.status_code == 400, refused.text
        assert served.post(asked("short", TEXT)).status_code == 200


def test_simple_task_when_it_makes_a_state_of_a_text_then_its_team_plays(
    team: Path, tmp_path: Path
) -> None:
    with serving(own_task(team, tmp_path, "request(self, text): return [text]")) as served:
        document = served.post(asked("pair", TEXT)).json()
    assert [step["agent"] for step in document["troupe"]["steps"]] == ["short", "long"]


def own_task(team: Path, tmp_path: Path, method: str) -> Path:
    """The team's run folder, as if trained on a SimpleTask that has ``method``."""
    code = tmp_path / "code.py"
    code.write_text(
        "from troupe import SimpleTask, Task\n"
        "class Code(SimpleTask):\n"
        "    agents = ('short', 'long')\n"
        "    def draw(self, rng): return [rng.random()]\n"
        "    def observe(self, state, agent): return str(state[0])\n"
        "    def step(self, state, agent, action): return self.transition(state, 0.0)\n"
        f"    def {method}\n",
        encoding="utf-8",
    )
    folder = tmp_path / "run-1"
    shutil.copytree(team, folder)
    shutil.copytree(team.parent / "base", tmp_path / "base", dirs_exist_ok=True)
    spec = json.loads((folder / "spec.json").read_text("utf-8"))
    spec["task"] = {"name": f"{code}:Code", "params": {}}
    (folder / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
    return folder
