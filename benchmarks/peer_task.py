"""What Troupe and its peers are measured on: one writer, one turn, a reward for a letter.

Owns prompts, reward and the tiny Qwen2 of ``benchmarks.vs_peers``. It teaches nothing useful.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from troupe.tasks.family import Message, Observation, Split, Task, Transition
from troupe.tasks.splits import DrawnTaskset

WRITER = "writer"
WORDS = (  # noqa: SIM905 (a sentence is easier to read)
    "the a tool agent moves north south east west then stops and says what it found on the way "
    "home before night when every lamp is lit and each door of the old house stands open again"
).split()
PROMPT_WORDS = 16
VOCABULARY = 1000
PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}"
"""A chat template that adds nothing: peers take prompts as texts."""


def prompt_of(rng: Random) -> str:
    """About 25 tokens."""
    return " ".join(rng.choice(WORDS) for _ in range(PROMPT_WORDS))


def reward_of(text: str) -> float:
    """Share of the letter e."""
    return text.count("e") / max(1, len(text))


class PeerParams(BaseModel):
    """Nothing but a seed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(default=0, description="Seed of the prompts.")


class PeerEnvironment:
    """One answer, judged and done."""

    def reset(self, task: Task) -> bytes:
        return task.payload

    def observe(self, state: bytes, agent: str) -> Observation:
        return (Message("user", state.decode()),)

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        return Transition(state, reward_of(action), {}, done=True, success=False, info={})


class PeerTask:
    """The family; see the module."""

    name: ClassVar[str] = "peer_task"
    agents: ClassVar[tuple[str, ...]] = (WRITER,)
    Params: ClassVar[type[BaseModel]] = PeerParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = {WRITER: {}}
    return_bound: ClassVar[float] = 1.0

    def __init__(self, params: BaseModel) -> None:
        self._params = PeerParams.model_validate(params.model_dump())

    def taskset(self) -> DrawnTaskset:
        return DrawnTaskset(self.name, self._params.seed, self._draw, hint="none")

    def environment(self) -> PeerEnvironment:
        return PeerEnvironment()

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        return "e" * 8

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        return prompt_of(rng)

    def vocabulary(self) -> Sequence[str]:
        return ()

    def _draw(self, rng: Random, split: Split) -> bytes | None:
        return prompt_of(rng).encode()


def save_tiny_qwen2(folder: Path) -> Path:
    """1.1 million random parameters and a byte-level BPE of 1,000 tokens."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<pad>", "<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pages = sorted((Path(__file__).parent.parent / "docs").glob("*.md"))
    inner.train_from_iterator([page.read_text("utf-8") for page in pages], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )
    tokenizer.chat_template = PLAIN
    shape: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 512,
        "max_position_embeddings": 256,
        "tie_word_embeddings": True,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": None,
    }
    torch.manual_seed(0)
    Qwen2ForCausalLM(Qwen2Config(**shape)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_float32(source: Path, folder: Path) -> Path:
    """A copy of a model in float32, so that no library computes in another format than the others.

    Its chat template adds nothing, so that all see the same prompt tokens.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    model.save_pretrained(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(source, padding_side="left")
    tokenizer.chat_template = PLAIN
    tokenizer.save_pretrained(folder)
    return folder
