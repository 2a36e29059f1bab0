"""One policy's transformers model: loading, the adapter, and log probabilities of tokens.

Owns what depends on transformers and peft. Never sees groups, rewards or other policies.

Shape suffixes: M tokens, N trained ones, R rows, T tokens of a row, D hidden.
"""

import copy
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from troupe.errors import InvalidArgumentError
from troupe.spec.policy import LoraSpec, PolicySpec
from troupe.tasks.content import ImagePart
from troupe.vision.model import VisionModel
from troupe_trainer.model.activations import checkpoint_layers
from troupe_trainer.model.base_model import base_model
from troupe_trainer.model.compiled import compile_parts
from troupe_trainer.model.flash import computes
from troupe_trainer.model.flops import StepFlops
from troupe_trainer.model.head_logprobs import head_logprobs
from troupe_trainer.model.kernels import PLAIN, Kernels
from troupe_trainer.model.loading import Unfilled, same_weights, skeleton, with_adapter
from troupe_trainer.model.logprobs import tokens_per_chunk
from troupe_trainer.model.onednn import padded, use_onednn
from troupe_trainer.model.packing import Microbatch, one_sequence
from troupe_trainer.model.published import published
from troupe_trainer.model.ranks.group import SOLO, Ranks, together
from troupe_trainer.model.ranks.shard import Sharded, Spreading, fill, part_of
from troupe_trainer.model.tied_gradient import join_gradients
from troupe_trainer.model.tree_attention import Tree, arguments, bias_of
from troupe_trainer.model.vision import Vision
from troupe_trainer.model.whole_weights import give_each, whole_weights

_T = TypeVar("_T")


@contextmanager
def exact_products() -> Generator[None]:
    """Products of float32 matrices keep all of their 23 bits, where the device has TF32 too."""
    present = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(present)


class PolicyModel:
    """A causal language model with its trained weights.

    Raises InvalidArgumentError when the model can't be loaded, JobFailedError when it does not
    fit into memory.
    """

    def __init__(
        self,
        policy: str,
        spec: PolicySpec,
        *,
        seed: int,
        device: str,
        kernels: Kernels = PLAIN,
        checkpoint_activations: bool = False,
        shares: "Sequence[PolicyModel]" = (),
        is_frozen: bool = False,
        is_spread: bool = False,
    ) -> None:
        """``shares``: models whose frozen base this one reuses where it is the same. ``is_frozen``:
        the base alone, without an adapter. ``is_spread``: each rank reads its part of the weights
        when ``spread`` is called, and none before."""
        self.policy = policy
        self.device = torch.device(device)
        if self.device.type == "cuda":
            torch.set_float32_matmul_precision("high")  # TF32 where float32 remains, on every rank
        self._spec = spec
        self._kernels = kernels
        kin = next((other for other in shares if other.has_base_of(spec)), None)
        base = base_model(policy, spec, self.device, kernels, kin=kin, is_spread=is_spread)
        self._unfilled, self._places, self._bare = base.unfilled, base.places, base.bare
        self.base_digest = base.digest
        """Of the model as it was found; see ``LearnerState.base``."""
        self._has_tree = base.has_tree
        sees, trains = base.vision, spec.train.vision
        self._vision = Vision(sees, self.device, is_trained=trains) if sees is not None else None
        self._config: Any = base.causal.config.get_text_config()
        self.is_lora = isinstance(spec.train, LoraSpec) and not is_frozen
        self.module: Any = base.causal
        if self.is_lora:
            self.module = with_adapter(policy, base.causal, spec, seed)
        if is_frozen:
            self.module.requires_grad_(False)
        self.module.eval()
        self._is_plain = self.device.type == "cpu" and spec.dtype == "float32"
        if self._is_plain:
            use_onednn(self.module)
        self._causal: Any = self.module.get_base_model() if self.is_lora else self.module
        self._head: nn.Module = self._causal.get_output_embeddings()
        self.flops = StepFlops(self._causal, is_lora=self.is_lora)
        self._reference: Any = None
        self._empty_reference: Unfilled | None = None
        self.teacher: PolicyModel | None = None
        """Set by ``keep_teacher``."""
        self.ranks = SOLO
        self.revision = 0
        """How often the trained weights were changed; see ``LiveWeights``."""
        self._take: Callable[[str, Tensor], None] | None = None
        self._sharded: Sharded | None = None
        self._reference_sharded: Sharded | None = None
        if checkpoint_activations:
            checkpoint_layers(self._causal)
        if kernels.is_compiled and not is_frozen:
            compile_parts(self._decoder, self.device)

    def has_base_of(self, spec: PolicySpec) -> bool:
        """Whether the frozen base under this adapter is the one that ``spec``'s adapter needs."""
        both_adapt = self._bare is not None and isinstance(spec.train, LoraSpec)
        return both_adapt and (spec.model, spec.dtype) == (self._spec.model, self._spec.dtype)

    def base_again(self) -> Any:
        """New modules of the loaded base for another adapter; the weights are shared."""
        return same_weights(self._bare)

    def spread(self, ranks: Ranks, *, is_offloaded: bool = False) -> None:
        """Shard the weights over ``ranks``; the results stay the same.

        ``is_offloaded``: they wait in the host's memory, and gradients and moments stay there.
        """
        self.ranks = ranks
        if ranks.mesh is None and self._is_plain:
            join_gradients(self._causal)
        if ranks.mesh is not None:
            self._bare = None
            dtype = torch.bfloat16 if self._spec.dtype == "bfloat16" else None
            spreading = Spreading(ranks.mesh, dtype, is_offloaded=is_offloaded)
            self._sharded = Sharded(self.module, spreading)
            if self._unfilled is not None:
                self._sharded.read(self._places, self._unfilled.stored)
            self._sharded.begin()
            if self._reference is not None:
                self._reference_sharded = Sharded(self._reference, spreading)
            if self._reference_sharded is not None and self._empty_reference is not None:
                places = self._empty_reference.places()
                self._reference_sharded.read(places, self._empty_reference.stored)
            self._places, self._unfilled, self._empty_reference = [], None, None
        if self.teacher is not None:
            self.teacher.spread(ranks, is_offloaded=is_offloaded)

    def modules(self) -> list[nn.Module]:
        """Every module with weights; some share them."""
        held = (self.module, self._bare, self._reference)
        own = [module for module in held if module is not None]
        return own if self.teacher is None else own + self.teacher.modules()

    @property
    def shares_prompts(self) -> bool:
        """Whether the layout may be a tree; see ``pack``."""
        return not self._kernels.is_packed

    @property
    def vocabulary_size(self) -> int:
        """Token ids are below this."""
        return int(self._config.vocab_size)

    @property
    def vision(self) -> VisionModel | None:
        """How the model takes images; None for one that takes none."""
        return self._vision.model if self._vision is not None else None

    @property
    def hidden_size(self) -> int:
        """Width of the decoder's output."""
        return int(self._config.hidden_size)

    @property
    def adapter_config_json(self) -> str:
        """peft's adapter_config.json; empty for full weights."""
        if not self.is_lora:
            return ""
        config = self.module.peft_config["default"].to_dict()
        return json.dumps(config, default=_jsonable, sort_keys=True)

    def trainable(self) -> dict[str, nn.Parameter]:
        """Parameters that receive gradients, by name, in a fixed order."""
        return {name: p for name, p in self.module.named_parameters() if p.requires_grad}

    def skeleton(self) -> Any:
        """A model without numbers whose ``save_pretrained`` writes given ``weights``.

        None of an adapter, and of weights that transformers had to convert when it loaded them.
        """
        if self.is_lora:
            return None
        if self.ranks.size == 1:
            return self.module
        return skeleton(self.policy, self._spec)

    @together
    def weights(self, adapter_dtype: str = "float32") -> dict[str, Tensor]:
        """Tensors that are published: the adapter, or every weight once.

        Full weights are in the policy's dtype, an adapter in ``adapter_dtype``. Over ranks, rank 0
        has them and the others return nothing.
        """
        dtype = adapter_dtype if self.is_lora else self._spec.dtype
        return whole_weights(published(self.module, getattr(torch, dtype)))

    def each_weight(self, take: Callable[[str, Tensor], None]) -> None:
        """Give ``take`` each tensor of ``weights``, one at a time, in the same order every time.

        It gets them where they are, not copied where they need not be. Over ranks, each is gathered
        for rank 0 alone; where ``take`` fails, it gets no more and the error is raised at the end.
        """
        self._take = take
        try:
            self._each_weight()
        finally:
            self._take = None

    @together
    def _each_weight(self) -> None:
        give_each(published(self.module, getattr(torch, self._spec.dtype)), self._take)

    def load_trainable(self, tensors: Mapping[str, Tensor], prefix: str = "") -> None:
        """Overwrite the trained parameters with those of their names, after ``prefix``."""
        self.revision += 1
        for name, parameter in self.trainable().items():
            fill(parameter, part_of(tensors, f"{prefix}{name}", parameter))

    def keep_reference(self) -> None:
        """Keep the present weights as the reference; for an adapter, switching it off is enough."""
        if self.is_lora or self._reference is not None:
            return
        if self._unfilled is not None:  # what bfloat16 weights compute with needs no master copy
            self._empty_reference = self._unfilled.twin(self._compute_dtype())
            self._reference = self._empty_reference.causal.requires_grad_(False)
        else:
            self._reference = copy.deepcopy(self._causal).requires_grad_(False)

    def keep_teacher(self, teacher: "PolicyModel") -> None:
        """Keep a frozen model that computes ``teacher_logprobs``.

        Raises InvalidArgumentError if the policy may sample tokens that it has no number for.
        """
        if teacher.vocabulary_size < self.vocabulary_size:
            raise InvalidArgumentError(
                f"The teacher of policy '{self.policy}' has an output of {teacher.vocabulary_size} "
                f"tokens and the policy one of {self.vocabulary_size}. Take a teacher with at "
                "least as many.",
                pointer=f"/policies/{self.policy}/teacher",
            )
        self.teacher = teacher

    @torch.no_grad()
    def teacher_logprobs(self, batch: Microbatch) -> Tensor:
        """Log probability of each trained token under the teacher; float32 of shape N."""
        assert self.teacher is not None, "keep_teacher() comes first"
        return self.teacher.logprobs(batch, want_entropy_grad=False)[0]

    @torch.no_grad()
    def reference_logprobs(self, batch: Microbatch) -> Tensor:
        """Log probability of each trained token under the reference; float32 of shape N."""
        if self.is_lora:
            with self.module.disable_adapter():
                return self.logprobs(batch, want_entropy_grad=False)[0]
        assert self._reference is not None, "keep_reference() comes first"
        present, gathering = self._causal, self._sharded
        self._use(self._reference, self._reference_sharded)
        try:
            return self.logprobs(batch, want_entropy_grad=False)[0]
        finally:
            self._use(present, gathering)

    def _use(self, causal: Any, sharded: Sharded | None) -> None:
        """Compute with ``causal``."""
        self._causal, self._sharded = causal, sharded
        self._head = causal.get_output_embeddings()

    @property
    def autocast(self) -> torch.autocast:
        """Computes bfloat16 weights and adapters, whose master copies are float32, in bfloat16.

        Over ranks the weights are gathered in bfloat16; autocast would keep a copy of each.
        """
        is_mixed = self._spec.dtype == "bfloat16" and self._sharded is None
        return torch.autocast(self.device.type, torch.bfloat16, enabled=is_mixed)

    def logprobs(self, batch: Microbatch, *, want_entropy_grad: bool) -> tuple[Tensor, Tensor]:
        """Log probability and entropy of the sampled distribution at each trained token.

        Both are float32 of shape N; the entropy carries a gradient only if it is wanted.
        """
        parts = self._gathered(lambda: self._logprobs(batch, want_entropy_grad))
        num_trained = len(batch.targets_N)
        return parts[0][:num_trained], parts[1][:num_trained]

    def _gathered(self, work: Callable[[], _T]) -> _T:
        """Do ``work`` while the weights that it needs are gathered."""
        return work() if self._sharded is None else self._sharded(work)

    def _logprobs(self, batch: Microbatch, want_entropy_grad: bool) -> tuple[Tensor, Tensor]:
        with self.autocast:
            hidden_N_D = self._hidden(batch)
            targets_N = self._column(batch.targets_N)
            temperatures_N = self._column(batch.temperatures_N, 1)
            size = tokens_per_chunk(self.vocabulary_size, on_cpu=self.device.type == "cpu")
            return head_logprobs(
                self._head,
                hidden_N_D,
                targets_N,
                temperatures_N,
                tokens_per_chunk=size,
                want_entropy_grad=want_entropy_grad,
            )

    def features(self, tokens_R_T: Tensor, last_R: Tensor) -> Tensor:
        """The decoder's float32 output at token ``last_R`` of each right-padded row, R x D."""
        with self.autocast:
            hidden_R_T_D = self._causal.model(
                input_ids=tokens_R_T, use_cache=False
            ).last_hidden_state
        rows_R = torch.arange(len(tokens_R_T), device=self.device)
        return hidden_R_T_D[rows_R, last_R].float()

    @together
    def score(self, token_ids: list[int], images: Sequence[ImagePart] = ()) -> list[float]:
        """Log probability of every token but the first, at temperature 1; placeholders have 0.

        They are computed as the model does when it learns, so a canary proves what is trained.
        """
        with exact_products():  # it is compared with an engine's, which rounds less than TF32
            return self._gathered(lambda: self._score(token_ids, images))

    def _score(self, token_ids: list[int], images: Sequence[ImagePart]) -> list[float]:
        with torch.no_grad(), self.autocast:
            logits = self._head(self._decoded(one_sequence(token_ids, images))[0])
            table = torch.log_softmax(logits[: len(token_ids) - 1].float(), dim=-1)
            targets_T = torch.tensor(token_ids[1:], device=self.device)
            scores_T = table.gather(1, targets_T[:, None])[:, 0]
            if self.vision is not None:
                scores_T[targets_T == self.vision.image_token_id] = 0.0
            return scores_T.tolist()

    def _hidden(self, batch: Microbatch) -> Tensor:
        """The decoder's output at each predictor, N x D."""
        return self._decoded(batch)[0].index_select(0, self._column(batch.predictors_N))

    def _decoded(self, batch: Microbatch) -> Tensor:
        """The decoder's output at every token, 1 x M x D."""
        inputs, attention = self._inputs(batch), self._attention(batch)
        return self._decoder(**inputs, use_cache=False, **attention).last_hidden_state

    @property
    def _decoder(self) -> Any:
        model: Any = self._causal.model
        return model if self._vision is None else model.language_model

    def _inputs(self, batch: Microbatch) -> dict[str, Any]:
        if self._vision is not None:
            return self._vision.inputs(self._causal, batch)
        tokens_M, positions_M = self._column(batch.tokens_M), self._column(batch.positions_M)
        return {"input_ids": tokens_M[None], "position_ids": positions_M[None]}

    def _column(self, values: NDArray[Any], padding: int = 0) -> Tensor:
        """One value a token on the device, with ``padding`` where oneDNN computes the layers."""
        if self._is_plain and self._has_tree and self._vision is None:
            values = padded(values, padding)
        return torch.from_numpy(values).to(self.device)

    def _attention(self, batch: Microbatch) -> dict[str, Any]:
        """The arguments that tell the layers which tokens see which."""
        if self._kernels.is_packed:  # a sequence begins where the position is 0
            return {}
        if self._has_tree:
            dtype = self._compute_dtype()
            segments = batch.segments if computes(dtype, self.device) else ()  # else by the mask
            return arguments(Tree(batch.lengths, batch.ends_M, self.device, dtype, segments))
        ends_1_M = torch.from_numpy(batch.ends_M)[None].to(self.device)
        return {"attention_mask": bias_of(ends_1_M, self._compute_dtype())}

    def _compute_dtype(self) -> torch.dtype:
        return getattr(torch, self._spec.dtype)


def _jsonable(value: Any) -> Any:
    return sorted(value) if isinstance(value, (set, frozenset)) else str(value)
