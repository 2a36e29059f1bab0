"""The framework examples as jobs without a model: their shapes, and a policy of chance.

Owns what tests/programs and benchmarks/program_episodes.py play alike. The policy reads what it is
asked: sums, verdicts, tool calls, who speaks next.
"""

import re
from pathlib import Path
from random import Random
from typing import Any

from troupe.candidates import GenerateRequest, Generation, text_generation
from troupe.spec import load_spec
from troupe.spec.job import JobSpec
from troupe.tasks.family import Observation, in_hermes_form
from troupe.tasks.tool_calls import written_call

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples" / "programs"
GROUP_SIZE = 3
SELECTOR = {
    "selector": {"system": "role play game|Read the following|Read the above", "rest": True}
}
SEATS: dict[tuple[str, str], dict[str, Any]] = {
    ("ag2_classic", "group"): SELECTOR,
    ("autogen", "selector"): SELECTOR,
}
"""Further seats of an example's shape."""
SHAPES: dict[str, tuple[str, ...]] = {
    "langgraph": ("run", "streamed", "fan_out", "with_tool"),
    "openai_sdk": ("run", "responses"),
    "ag2": ("run", "streamed", "with_tool", "chat:run"),
    "ag2_classic": ("run", "group"),
    "autogen": ("run", "with_tool", "selector", "swarm"),
    "llamaindex": ("run", "handoff"),
    "openai_agents": ("run", "handoff"),
    "anthropic_sdk": ("run", "with_tool"),
    "mcp_tools": ("run",),
}
"""Functions of each example's team.py, or module:function."""
QUESTION = re.compile(r"What is (\d+) \+ (\d+)")


def python_of(framework: str) -> Path:
    """The interpreter that `make program-venv NAME=framework` makes."""
    return ROOT / ".venv-programs" / framework / "bin" / "python"


def spec_of(framework: str, shape: str, algorithm: str) -> JobSpec:
    """The example's job on one of its shapes; read it in EXAMPLES, whose paths are relative."""
    document = load_spec(EXAMPLES / f"{framework}.yaml").model_dump(mode="json")
    params, seats = document["task"]["params"], SEATS.get((framework, shape), {})
    params["program"] = shape if ":" in shape else f"team:{shape}"
    params["seats"] = {**params["seats"], **seats}
    document["algorithm"].update(kind=algorithm, group_size=GROUP_SIZE)
    for agent in seats:
        document["agents"][agent] = {"policy": "solver"}
        document["workflow"]["order"].append(agent)
    return JobSpec.model_validate(document)


class ChancePolicy:
    """RolloutPort: about half of its sums are right. The draw follows from the seed alone."""

    def __init__(self) -> None:
        self.num_tool_calls = 0

    async def generate(
        self, request: GenerateRequest[Observation], *, timeout_s: float
    ) -> Generation:
        prompt = in_hermes_form(request.prompt)
        texts = [
            self._text(prompt, Random(f"{request.seed}/{i}")) for i in range(request.num_candidates)
        ]
        return text_generation(request, [(text, "stop") for text in texts], (0, 0))

    def _text(self, prompt: Observation, draw: Random) -> str:
        seen = "\n".join(message.text for message in prompt)
        a, b = map(int, QUESTION.findall(seen)[-1])
        last, system = prompt[-1].text, prompt[0].text
        if "<tools>" in seen and "<tool_response>" not in last and draw.random() < 0.6:
            self.num_tool_calls += 1
            return self._call(system if "<tools>" in system else seen, a, b)
        if "role play game" in seen or "Read the above conversation" in seen:
            return draw.choice(["solver", "verifier"])
        if "You are the verifier" in system:
            return draw.choice(["APPROVE", "REVISE"])
        return f"I say ANSWER: {a + b + draw.choice([0, 0, 1])}"

    def _call(self, system: str, a: int, b: int) -> str:
        if '"name": "add"' in system:
            return (
                f'<tool_call>\n{{"name": "add", "arguments": {{"a": {a}, "b": {b}}}}}\n</tool_call>'
            )
        name = re.findall(r'"name": "([\w-]*(?:transfer|hand)[\w-]*)"', system)[0]
        arguments = "{}" if "transfer" in name else '{"to_agent": "verifier", "reason": "check"}'
        return written_call(name, arguments)
