"""The OpenAI SDK's default client reads the address of each run, not that of the warm one.

`make test-programs` makes the virtual environment; without it the test is skipped.
"""

from pathlib import Path
from typing import Any

import pytest
from client_world import program_of

PROGRAM = """
import openai

asked = {"model": "any", "messages": [{"role": "user", "content": "You?"}]}


def run(task):
    return openai.chat.completions.create(**asked).choices[0].message.content
"""

pytestmark = [pytest.mark.programs, pytest.mark.slow, pytest.mark.timeout(300)]


def test_default_client_when_the_program_was_warmed_up_then_it_asks_its_own_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = program_of("openai_sdk", PROGRAM, tmp_path, monkeypatch)
    environment: Any = family.environment()
    try:
        for index in range(2):
            state = environment.reset(family.taskset().task("train", index))
            assert environment.observe(state, "solver")[-1].content == "You?"
            assert environment.step(state, "solver", "I am").info["answer"] == "I am"
    finally:
        environment.close()
