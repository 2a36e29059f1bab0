"""Noisy demonstrations of a task family, as token ids to imitate.

Some demonstrations are borrowed from another state: a legitimate answer to the wrong question.
They are imitated *and* played, so the states seen are those of a clumsy team.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from transformers import PreTrainedTokenizerFast

from troupe.tasks.contract import TaskFamily

RECENT = 64
"""Demonstrations per agent that a noisy one may be borrowed from."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """Token ids of one prompt and of the answer to imitate, which ends with the end token."""

    prompt: list[int]
    completion: list[int]


def demonstrations(
    family: TaskFamily, tokenizer: PreTrainedTokenizerFast, noise: float, num_turns: int, rng: Random
) -> Iterator[Demonstration]:
    """Demonstrations without end, from train tasks 0, 1, 2, ... played once each."""
    taskset, env = family.taskset(), family.environment()
    recent: dict[str, list[str]] = {agent: [] for agent in family.agents}
    index = 0
    while True:
        state, is_done = env.reset(taskset.task("train", index)), False
        for agent in family.agents * num_turns:
            good = family.demonstrate(state, agent, rng)
            shown = rng.choice(recent[agent]) if recent[agent] and rng.random() < noise else good
            recent[agent] = [*recent[agent][-RECENT + 1 :], good]
            yield _encoded(tokenizer, env.observe(state, agent), shown)
            transition = env.step(state, agent, shown)
            state, is_done = transition.state, transition.done
            if is_done:
                break
        index += 1


def _encoded(tokenizer, observation, answer: str) -> Demonstration:
    chat = [{"role": message.role, "content": message.content} for message in observation]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    completion = tokenizer(answer, add_special_tokens=False)["input_ids"]
    return Demonstration(prompt, [*completion, tokenizer.eos_token_id])
