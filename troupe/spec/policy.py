"""The part of a job spec that says what a policy is and how it is trained."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from troupe.spec.base import Name, SpecModel, is_empty

_RENDERERS = frozenset(
    {
        *("conversation", "messages", "tools", "documents", "chat_template", "tokenize"),
        *("add_generation_prompt", "continue_final_message", "padding", "truncation"),
        *("max_length", "return_tensors", "return_dict", "tokenizer_kwargs"),
        "return_assistant_tokens_mask",
    }
)
"""What `apply_chat_template` takes itself: the engine sets it, or never does."""


def _of_the_template(variables: dict[str, "TemplateValue"]) -> dict[str, "TemplateValue"]:
    if reserved := sorted(_RENDERERS & variables.keys()):
        raise ValueError(f"'{reserved[0]}' is no variable of a template: the engine sets it")
    return variables


TemplateValue = bool | int | float | str
TemplateVariables = Annotated[
    dict[Annotated[str, Field(pattern=r"^[A-Za-z_]\w{0,63}$")], TemplateValue],
    Field(max_length=16),
    AfterValidator(_of_the_template),
]
"""Variables of a model's chat template."""


class LoraSpec(SpecModel):
    """Train a low-rank adapter (peft)."""

    kind: Literal["lora"] = "lora"
    """Selects LoRA."""
    rank: int = Field(default=16, ge=1, le=1024)
    """Rank r of the update matrices."""
    alpha: float = Field(default=32.0, gt=0.0)
    """Scale: the update is multiplied by alpha / rank."""
    targets: list[str] | Literal["all-linear"] = "all-linear"
    """Module names that get an adapter: linear layers of the blocks, not `lm_head` or
    `embed_tokens`. In a model that takes images, of its language model."""
    vision: bool = Field(default=False, exclude_if=is_empty)
    """Also adapt the vision tower of a model that takes images."""


class FullSpec(SpecModel):
    """Train all weights."""

    kind: Literal["full"] = "full"
    """Selects full weights."""
    vision: bool = Field(default=False, exclude_if=is_empty)
    """Also train the vision tower of a model that takes images."""


class OptimizerSpec(SpecModel):
    """AdamW and its schedule."""

    learning_rate: float = Field(default=1e-4, gt=0.0, le=1.0)
    """Peak learning rate. LoRA needs about ten times that of full weights."""
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """Shape after the warm-up, over the whole job."""
    warmup_steps: int = Field(default=5, ge=0)
    """Optimizer steps of the linear warm-up from 0 to the peak."""
    min_ratio: float = Field(default=0.1, ge=0.0, le=1.0)
    """Learning rate at the end of cosine or linear, as a fraction of the peak."""
    weight_decay: float = Field(default=0.0, ge=0.0)
    """Decoupled weight decay."""
    beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    """Adam's first-moment decay."""
    beta2: float = Field(default=0.95, ge=0.0, lt=1.0)
    """Adam's second-moment decay."""
    max_grad_norm: float = Field(default=1.0, gt=0.0)
    """Gradients are clipped to this global L2 norm."""


class PastSpec(SpecModel):
    """Weights that are not trained: an opponent or partner that is a past version."""

    of: Name
    """Policy whose past weights these are, or that plays against them."""
    every: int = Field(default=0, ge=0)
    """Steps after which this policy takes over the weights of `of`, again and again; 0: it stays
    `model`."""


class PolicySpec(SpecModel):
    """One set of weights that agents sample from and that is trained."""

    model: str = Field(min_length=1)
    """Local folder or hub id of a transformers causal language model. A mixture of experts, scaled
    or capped logits and a sliding window shorter than the context are refused."""
    train: Annotated[LoraSpec | FullSpec, Field(discriminator="kind")] = LoraSpec()
    """What is trained."""
    optimizer: OptimizerSpec = OptimizerSpec()
    """How it is trained."""
    replicas: int = Field(default=1, ge=1, le=256)
    """Rollout replicas that serve this policy, at least: policies that share a pool (see `rollout`)
    have as many as the one that asks for most."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format of the weights in trainer and engine. Left out, a job whose platform gives GPUs
    (TROUPE_ROUTER_GPUS, TROUPE_ROUTER_TRAINER_GPUS) gets bfloat16 when it is submitted, and any
    other float32; the run folder's spec says which."""
    teacher: str | None = Field(default=None, min_length=1, exclude_if=lambda name: name is None)
    """Local folder or hub id of the frozen model that an algorithm with a teacher learns from
    (`distill`); its tokenizer has the vocabulary of `model`'s."""
    teacher_replicas: int | None = Field(
        default=None, ge=1, le=256, exclude_if=lambda count: count is None
    )
    """Rollout replicas that serve `teacher` and score what is sampled while a round is played, at
    least; needs temperature 1. Left out: the trainer holds the teacher beside the policy."""
    chat_template_kwargs: TemplateVariables = Field(default_factory=dict, exclude_if=is_empty)
    """Variables of the model's chat template for each prompt, such as `enable_thinking: false` for
    Qwen3. One that the template does not name is refused when the model is loaded."""
    past: PastSpec | None = None
    """Makes it a past version of another policy, or a frozen model, that is never trained."""
    frozen: bool = False
    """Its agents play and it never learns: the weights stay those of `model`."""

    def models(self) -> dict[str, str]:
        """The models that it names, by field."""
        return {"model": self.model} | ({"teacher": self.teacher} if self.teacher else {})

    def served_teacher(self) -> "PolicySpec | None":
        """The teacher as rollout replicas serve it; None where the trainer has it, or none is."""
        if self.teacher is None or self.teacher_replicas is None:
            return None
        smallest = LoraSpec(rank=1, alpha=1.0)  # room for the adapter that changes nothing
        return PolicySpec(
            model=self.teacher,
            train=smallest,
            dtype=self.dtype,
            replicas=self.teacher_replicas,
            frozen=True,
        )


def teacher_name(policy: str) -> str:
    """The name under which rollout replicas serve the teacher of ``policy``."""
    return f"{policy}-teacher"
