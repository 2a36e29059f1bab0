"""What the vendors' own clients make of an answer that a bound cut: whole, streamed, all formats.

`make test-programs` makes their virtual environments; without them the tests are skipped.
"""

from pathlib import Path
from typing import Any

import pytest
from client_world import program_of

from troupe.tasks.actions import CutAction

CLIENTS = {
    "openai_sdk": """
from openai import OpenAI

client, asked = OpenAI(), {"model": "any", "messages": [{"role": "user", "content": "You?"}]}


def run(task):
    ends = [client.chat.completions.create(**asked).choices[0].finish_reason]
    chunks = [c.choices[0] for c in client.chat.completions.create(**asked, stream=True)]
    ends.append(chunks[-1].finish_reason)
    whole = client.responses.create(model="any", input="You?")
    ends.append(f"{whole.status} {whole.incomplete_details.reason}")
    with client.responses.stream(model="any", input="You?") as stream:
        kinds = [event.type for event in stream]
    return ", ".join([*ends, kinds[-1]])
""",
    "anthropic_sdk": """
from anthropic import Anthropic

client = Anthropic()
asked = {"model": "any", "max_tokens": 9, "messages": [{"role": "user", "content": "You?"}]}


def run(task):
    ends = [client.messages.create(**asked).stop_reason]
    with client.messages.stream(**asked) as stream:
        ends.append(stream.get_final_message().stop_reason)
    return ", ".join(ends)
""",
    "langgraph": """
from langchain_openai import ChatOpenAI

llm = ChatOpenAI(model="gpt-4o-mini")


def run(task):
    whole = llm.invoke("You?").response_metadata["finish_reason"]
    parts = [part.response_metadata.get("finish_reason") for part in llm.stream("You?")]
    return ", ".join([whole, *filter(None, parts)])
""",
}
TOLD = {
    "openai_sdk": "length, length, incomplete max_output_tokens, response.incomplete",
    "anthropic_sdk": "max_tokens, max_tokens",
    "langgraph": "length, length",
}

pytestmark = [pytest.mark.programs, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("name", sorted(CLIENTS))
def test_client_when_an_answer_was_cut_then_it_reads_why(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = program_of(name, CLIENTS[name], tmp_path, monkeypatch, warm=False)
    environment: Any = family.environment()
    try:
        state, answer = environment.reset(family.taskset().task("train", 0)), ""
        while environment.observe(state, "solver"):
            done = environment.step(state, "solver", CutAction("I am"))
            state, answer = done.state, done.info.get("answer", "")
    finally:
        environment.close()
    assert answer == TOLD[name]
