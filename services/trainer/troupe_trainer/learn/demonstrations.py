"""One policy's demonstrations as token ids, and which of them an optimizer step imitates.

Which ones, and their weight, follow from the job's seed and the number of the optimizer step alone,
so a resumed job goes on with the same. Owns what follows from the spec; never sees a model.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from transformers import AutoTokenizer

from troupe.candidates import Sample
from troupe.data.demonstrations import POINTER, Demonstration, demonstrations_in
from troupe.errors import InvalidArgumentError
from troupe.samplers.sampler import Sampler
from troupe.seeds import derive_seed
from troupe.spec.algorithm import DemonstrationsSpec
from troupe.spec.job import JobSpec
from troupe_trainer.learn.schedule import num_updates
from troupe_trainer.samples import PromptSamples


class Demonstrations:
    """Demonstrations without end: all in an order that the seed draws, then all in another.

    ``num_updates``: optimizer steps of the policy in the whole job, over which a weight falls.
    """

    def __init__(
        self,
        spec: DemonstrationsSpec,
        prompts: Sequence[PromptSamples],
        seed: int,
        num_updates: int,
    ) -> None:
        self._spec = spec
        self._prompts = prompts
        self._seed = seed
        self._num_updates = num_updates
        self._order = lru_cache(maxsize=2)(self._drawn)

    def of_update(self, optimizer_step: int) -> list[PromptSamples]:
        """What the optimizer step imitates."""
        size, count = len(self._prompts), self._spec.per_update
        places = (
            divmod(n, size) for n in range(optimizer_step * count, (optimizer_step + 1) * count)
        )
        return [self._prompts[self._order(epoch)[place]] for epoch, place in places]

    def weight(self, optimizer_step: int) -> float:
        """Weight of their mean cross-entropy in the loss of the optimizer step."""
        if self._spec.schedule == "constant":
            return self._spec.weight
        return self._spec.weight * max(0.0, 1.0 - optimizer_step / max(1, self._num_updates))

    def _drawn(self, epoch: int) -> list[int]:
        size = len(self._prompts)
        return Random(derive_seed(self._seed, epoch)).sample(range(size), size)


def demonstrations_of(policy: str, spec: JobSpec, sampler: Sampler) -> Demonstrations | None:
    """Those of the agents of ``policy``; None without any, or where it never learns.

    ``sampler``: the algorithm's.

    Raises:
        InvalidArgumentError: as ``demonstrations_in``, or a row is one that its agent could not
            say.
    """
    given = spec.algorithm.demonstrations
    if given is None or not spec.trains(policy):
        return None
    mine = [row for row in demonstrations_in(spec) if spec.agents[row.agent].policy == policy]
    if not mine:
        return None
    path = Path(given.path)
    try:
        prompts = _tokenized(mine, path, policy, spec)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(error.message, pointer=f"{POINTER}/path") from error
    seed = derive_seed(spec.seed, "demonstrations", policy)
    return Demonstrations(given, prompts, seed, num_updates(policy, spec, sampler))


def _tokenized(
    rows: Sequence[Demonstration], path: Path, policy: str, spec: JobSpec
) -> list[PromptSamples]:
    model = spec.policies[policy].model
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError, KeyError) as error:
        raise InvalidArgumentError(
            f"The tokenizer of '{model}' can't be loaded: {error}. Policy '{policy}' needs one to "
            "read demonstrations; give a model folder that has one."
        ) from error
    if tokenizer.eos_token_id is None or not tokenizer.chat_template:
        missing = "chat template" if not tokenizer.chat_template else "end token"
        raise InvalidArgumentError(
            f"The tokenizer of '{model}' has no {missing}, which demonstrations need. Add it to "
            "the model folder, or leave them out."
        )
    return [_one(row, tokenizer, path, policy, spec) for row in rows]


def _one(
    row: Demonstration, tokenizer: Any, path: Path, policy: str, spec: JobSpec
) -> PromptSamples:
    """The prompt as the engine renders it, and the answer with the token that ends it."""
    chat = [{"role": message.role, "content": message.text} for message in row.messages]
    try:
        text = tokenizer.apply_chat_template(
            chat,
            add_generation_prompt=True,
            tokenize=False,
            **spec.policies[policy].chat_template_kwargs,
        )
    except Exception as error:  # templates raise any type
        raise InvalidArgumentError(
            f"{path}, row {row.row}: the chat template of '{spec.policies[policy].model}' refuses "
            f"the messages ({error}); change them, or take the row out"
        ) from error
    prompt = tokenizer.encode(text, add_special_tokens=False)
    answer = [*tokenizer.encode(row.answer, add_special_tokens=False), tokenizer.eos_token_id]
    limit = spec.sampling_for(row.agent).max_new_tokens
    if len(answer) > limit:
        raise InvalidArgumentError(
            f"{path}, row {row.row}: the answer has {len(answer)} tokens with its end, and agent "
            f"'{row.agent}' may write {limit} (max_new_tokens); shorten it, or raise the limit"
        )
    sample = Sample(
        index=0,
        reward=0.0,
        num_tokens=len(answer),
        is_truncated=False,
        token_ids=np.array(answer, dtype=np.int32),
        rollout_logprobs=np.zeros(len(answer), dtype=np.float32),
    )
    return PromptSamples(np.array(prompt, dtype=np.int32), [sample])
