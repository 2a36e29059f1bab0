"""Lays a step's groups out: which minibatch each is in, its micro-batches, and who computes them.

Owns what of it follows from the spec. Pure: the same groups, the same layout. Never sees a model.
"""

from collections.abc import Sequence

from troupe.algorithms.algorithm import Algorithm, has_own_loss
from troupe.seeds import derive_seed
from troupe.spec.job import JobSpec
from troupe.vision.model import VisionModel
from troupe_trainer.learn.minibatches import minibatches
from troupe_trainer.learn.windows import Windows
from troupe_trainer.model.packing import Block, lay_out
from troupe_trainer.model.shares import Dealt, deal
from troupe_trainer.samples import CreditedGroup, PromptSamples

Batches = Sequence[Sequence[Block]]
"""Micro-batches."""


class Layout:
    """The layout of one policy's steps for ``num_ranks`` processes."""

    def __init__(
        self,
        policy: str,
        spec: JobSpec,
        algorithm: Algorithm,
        *,
        shares_prompts: bool,
        num_ranks: int,
        sums_exactly: bool = False,
        trained_vision: VisionModel | None = None,
    ) -> None:
        self._policy = policy
        self._spec = spec
        self._shares_prompts = shares_prompts
        self._num_ranks = num_ranks
        self._trained_vision = trained_vision
        self._by_token = algorithm.aggregation == "token"
        self._keeps_flat_groups = (
            has_own_loss(algorithm)
            or algorithm.needs.entropy
            or (algorithm.needs.reference and spec.algorithm.loss.kl.where == "loss")
        )
        self._windows = Windows(spec, algorithm.sampler(), is_exact=sums_exactly)

    def minibatches(
        self, groups: Sequence[CreditedGroup], optimizer_step: int
    ) -> Sequence[Sequence[CreditedGroup]]:
        """The minibatches of the step that begins at ``optimizer_step``, epoch after epoch."""
        seed = derive_seed(self._spec.seed, "minibatches", self._policy, optimizer_step)
        algorithm, num_tickets = self._spec.algorithm, self._spec.tasks_per_step
        seeds = [seed, *(derive_seed(seed, "epoch", n) for n in range(1, algorithm.epochs))]
        of_epochs = [minibatches(groups, algorithm.minibatches, s, num_tickets) for s in seeds]
        return [part for parts in of_epochs for part in parts]

    @property
    def num_minibatches(self) -> int:
        """Of each epoch."""
        return self._spec.algorithm.minibatches

    def windows(self, groups: Sequence[CreditedGroup]) -> dict[int, list[CreditedGroup]]:
        """The groups of the first minibatch by window of tickets, in order."""
        return self._windows.split(groups)

    def num_windows(self, num_tickets: int) -> int:
        """Windows of a round of ``num_tickets``."""
        return self._windows.count(num_tickets)

    def tickets_of(self, window: int, num_tickets: int) -> range:
        """Positions of the tickets of ``window``."""
        return self._windows.tickets_of(window, num_tickets)

    def is_used(self, group: CreditedGroup) -> bool:
        """Whether the loss of ``group`` has a gradient.

        Groups without signal have none under a loss of Troupe's without entropy or KL: they count
        in the denominator and are not computed. An own loss is always asked.
        """
        return group.num_samples > 0 and (self._keeps_flat_groups or group.has_signal)

    def microbatches(self, groups: Sequence[CreditedGroup], *, with_all: bool = False) -> Batches:
        """The micro-batches of the groups that are used, or ``with_all`` of all."""
        used = [group for group in groups if with_all or self.is_used(group)]
        return self._laid_out([prompt for group in used for prompt in group.prompts])

    def imitated(self, parts: Sequence[Sequence[PromptSamples]]) -> Dealt:
        """The micro-batches of each minibatch's demonstrations, dealt to the ranks.

        Each share is divided by its number of tokens.
        """
        tokens = [sum(s.num_tokens for p in prompts for s in p.samples) for prompts in parts]
        batches = [self._laid_out(prompts) for prompts in parts]
        return deal(batches, tokens, [0] * len(parts), self._num_ranks)

    def _laid_out(self, prompts: Sequence[PromptSamples]) -> Batches:
        return lay_out(
            prompts,
            self._spec.batch,
            shares_prompts=self._shares_prompts,
            trained_vision=self._trained_vision,
        )

    def dealt(self, batches: Sequence[Batches], parts: Sequence[Sequence[CreditedGroup]]) -> Dealt:
        """The micro-batches ``batches`` of the minibatches ``parts``, dealt to the ranks."""
        denominators = [
            sum(g.num_tokens if self._by_token else g.num_samples for g in groups)
            for groups in parts
        ]
        return deal(batches, denominators, [len(groups) for groups in parts], self._num_ranks)
