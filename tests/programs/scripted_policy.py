"""A policy of chance that reads what it is asked: sums, verdicts, tool calls, who speaks next."""

import re
from random import Random

from troupe.candidates import GenerateRequest, Generation, text_generation
from troupe.tasks.family import Observation
from troupe.wire.dialect import written_call

QUESTION = re.compile(r"What is (\d+) \+ (\d+)")


class ChancePolicy:
    """RolloutPort: about half of its sums are right. The draw follows from the seed alone."""

    def __init__(self) -> None:
        self.num_tool_calls = 0

    async def generate(
        self, request: GenerateRequest[Observation], *, timeout_s: float
    ) -> Generation:
        texts = [
            self._text(request.prompt, Random(f"{request.seed}/{i}"))
            for i in range(request.num_candidates)
        ]
        return text_generation(request, [(text, "stop") for text in texts], (0, 0))

    def _text(self, prompt: Observation, draw: Random) -> str:
        seen = "\n".join(message.content for message in prompt)
        a, b = map(int, QUESTION.findall(seen)[-1])
        last, system = prompt[-1].content, prompt[0].content
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
