"""Demonstrations of a task family, as token ids to imitate: first careful, then careless.

A careless demonstrator slips: now and then one word of an answer is another word. Slips are
imitated *and* played, so the states seen are those of a clumsy team.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, cast

from transformers import PreTrainedTokenizerFast

from troupe.errors import InvalidArgumentError
from troupe.tasks.content import ImagePart
from troupe.tasks.family import Observation, TaskFamily, in_hermes_form, observed_images
from troupe.tasks.optional import required_policy
from troupe.vision.chat import expanded_prompt, template_messages
from troupe.vision.layout import Grid
from troupe.vision.model import VisionModel
from troupe_trainer.tiny_model.recipe import WarmStart
from troupe_trainer.tiny_model.tokenizer import END

RECENT = 64
"""Words of an agent's answers so far that a slip is drawn from."""


@dataclass(frozen=True, slots=True)
class TokenDemonstration:
    """Token ids of one prompt and of the answer to imitate, which ends with the end token.

    ``images`` are those of the prompt, in the order of their placeholders, and ``grids`` theirs.
    """

    prompt: list[int]
    completion: list[int]
    images: Sequence[ImagePart] = ()
    grids: Sequence[Grid] = ()


def demonstrations(
    family: TaskFamily,
    tokenizer: PreTrainedTokenizerFast,
    recipe: WarmStart,
    rng: Random,
    vision: VisionModel | None = None,
) -> Iterator[TokenDemonstration]:
    """Demonstrations without end: train tasks 0, 1, 2, ..., and again when they end.

    ``vision`` is that of the model which imitates them; without one, observations are of text.
    """
    demonstrate = required_policy(
        family,
        "demonstrate",
        needed_by="a warm start",
        instead="make the model without one: num_careful_steps and num_careless_steps 0",
    )
    taskset, env = family.taskset(), family.environment()
    size = taskset.size("train")
    recent: dict[str, list[str]] = {agent: [] for agent in family.agents}
    num_careful = recipe.num_careful_steps * recipe.batch_size
    num_shown = 0
    for index in count():
        state = env.reset(taskset.task("train", index % size if size else index))
        is_solo = rng.random() < recipe.solo_share
        team = family.agents[-1:] if is_solo else family.agents
        for agent in team * recipe.num_turns:
            # An empty observation: in a game that takes turns, it is another seat's turn.
            if not env.observe(state, agent):
                continue
            words = demonstrate(state, agent, rng).split(" ")
            recent[agent] = [*recent[agent], *words][-RECENT:]
            if num_shown >= num_careful:
                words = _with_slips(words, recent[agent], recipe.slip_rate, rng)
            shown = " ".join(words)
            yield _encoded(tokenizer, env.observe(state, agent), shown, vision)
            num_shown += 1
            transition = env.step(state, agent, shown)
            if transition.done:
                break
            state = transition.state


def _with_slips(words: list[str], others: list[str], rate: float, rng: Random) -> list[str]:
    return [rng.choice(others) if rng.random() < rate else word for word in words]


def _encoded(
    tokenizer: PreTrainedTokenizerFast,
    observation: Observation,
    answer: str,
    vision: VisionModel | None,
) -> TokenDemonstration:
    observation = in_hermes_form(observation)  # the template of a model made here knows no tools
    images = observed_images(observation)
    if images and vision is None:
        raise InvalidArgumentError(
            "The task shows images, and the model to make reads text alone. Make a "
            "vision-language model: troupe model tiny --vision."
        )
    chat: list[dict[str, Any]] = (
        [{"role": message.role, "content": message.text} for message in observation]
        if vision is None
        else template_messages(tokenizer, observation, vision)
    )
    rendered = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    prompt = tokenizer.encode(cast("str", rendered), add_special_tokens=False)
    completion = tokenizer.encode(answer + END, add_special_tokens=False)
    if vision is None:
        return TokenDemonstration(prompt, completion)
    prompt, grids = expanded_prompt(prompt, images, vision)
    return TokenDemonstration(prompt, completion, images, grids)
