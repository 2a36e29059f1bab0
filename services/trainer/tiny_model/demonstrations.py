"""Noisy demonstrations of a task family, as token ids to imitate.

Some demonstrations are borrowed from another state: a legitimate answer to the wrong question.
They are imitated *and* played, so the states seen are those of a clumsy team.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random

from transformers import PreTrainedTokenizerFast

from services.trainer.tiny_model.recipe import WarmStart
from troupe.tasks.contract import Observation, TaskFamily

RECENT = 64
"""Demonstrations per agent that a noisy one may be borrowed from."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """Token ids of one prompt and of the answer to imitate, which ends with the end token."""

    prompt: list[int]
    completion: list[int]


def demonstrations(
    family: TaskFamily,
    tokenizer: PreTrainedTokenizerFast,
    recipe: WarmStart,
    rng: Random,
) -> Iterator[Demonstration]:
    """Demonstrations without end, from train tasks 0, 1, 2, ... played once each."""
    taskset, env = family.taskset(), family.environment()
    recent: dict[str, list[str]] = {agent: [] for agent in family.agents}
    for index in count():
        state = env.reset(taskset.task("train", index))
        is_solo = rng.random() < recipe.solo_share
        team = family.agents[-1:] if is_solo else family.agents
        for agent in team * recipe.num_turns:
            good = family.demonstrate(state, agent, rng)
            is_borrowed = recent[agent] and rng.random() < recipe.noise
            shown = rng.choice(recent[agent]) if is_borrowed else good
            recent[agent] = [*recent[agent][-RECENT + 1 :], good]
            yield _encoded(tokenizer, env.observe(state, agent), shown)
            transition = env.step(state, agent, shown)
            if transition.done:
                break
            state = transition.state


def _encoded(
    tokenizer: PreTrainedTokenizerFast, observation: Observation, answer: str
) -> Demonstration:
    chat = [{"role": message.role, "content": message.content} for message in observation]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    completion = tokenizer(answer, add_special_tokens=False)["input_ids"]
    return Demonstration(prompt, [*completion, tokenizer.eos_token_id])
