"""Each architecture is learned as transformers computes it, or refused by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from trainer_data import TINY_SIZES
from transformers import AutoModelForCausalLM
from transformers.modeling_utils import AttentionInterface

from troupe.candidates import Sample
from troupe.errors import InvalidArgumentError
from troupe.spec.batch import BatchSpec
from troupe.spec.policy import PolicySpec
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.packing import pack
from troupe_trainer.model.tree_attention import NAME, attend
from troupe_trainer.samples import PromptSamples

SIZES: dict[str, Any] = {
    **TINY_SIZES,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GEMMA: dict[str, Any] = {"head_dim": 8, "query_pre_attn_scalar": 8}
COMPUTED: list[tuple[str, dict[str, Any]]] = [
    ("Llama", {}),
    ("Mistral", {"sliding_window": None}),
    ("Mistral", {"sliding_window": 256}),
    ("Qwen2", {"sliding_window": 8}),  # unused, as in every published config
    ("Qwen3", {"head_dim": 8, "sliding_window": 8}),
    ("Olmo2", {}),
    ("SmolLM3", {}),
    ("Granite", {"logits_scaling": 1.0, "attention_multiplier": 0.1}),
]
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("Granite", {"logits_scaling": 8.0}, r"\(granite\) .*logits_scaling is 8.0"),
    ("Cohere", {"logit_scale": 0.0625}, r"\(cohere\) .*logit_scale is 0.0625"),
    ("Gemma2", {**GEMMA, "final_logit_softcapping": 30.0}, "final_logit_softcapping is 30.0"),
    ("Gemma2", {**GEMMA, "final_logit_softcapping": None}, "attn_logit_softcapping is 50.0"),
    ("Gemma3Text", {**GEMMA, "sliding_window": 8}, r"\(gemma3_text\) has layers .* 8 tokens"),
    ("Mistral", {"sliding_window": 255}, r"attend to 255 tokens at most, .* context has 256"),
    ("Phi3", {"sliding_window": 8}, r"\(phi3\) has layers that attend to 8 tokens"),
    (
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
        r"\(qwen2\) has layers that attend to 8 tokens",
    ),
]


def _spec(folder: Path) -> PolicySpec:
    document = {"model": str(folder), "dtype": "float32", "train": {"kind": "lora", "rank": 2}}
    return PolicySpec.model_validate(document)


def _save(kind: str, more: dict[str, Any], folder: Path) -> None:
    torch.manual_seed(1)
    config = getattr(transformers, f"{kind}Config")(**SIZES, **more)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def _expected(folder: Path, tokens: np.ndarray[Any, Any]) -> torch.Tensor:
    """Log probability of each token but the first, by transformers' own pass."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    row = torch.from_numpy(tokens.astype(np.int64))[None]
    with torch.no_grad():
        table = torch.log_softmax(model(input_ids=row, use_cache=False).logits[0].float(), -1)
    return table[:-1].gather(1, row[0, 1:, None])[:, 0]


@pytest.mark.parametrize(("kind", "more"), COMPUTED)
def test_logprobs_when_an_architecture_is_taken_then_are_those_of_transformers(
    kind: str, more: dict[str, Any], tmp_path: Path
) -> None:
    _save(kind, more, tmp_path)
    model = PolicyModel("p", _spec(tmp_path), seed=0, device="cpu")
    rng = np.random.default_rng(0)
    prompt, *completions = (rng.integers(3, 48, n).astype(np.int32) for n in (20, 10, 10, 6))
    zeros = np.zeros(10, np.float32)
    samples = [
        Sample(i, 0.0, len(c), False, token_ids=c, rollout_logprobs=zeros[: len(c)])
        for i, c in enumerate(completions)
    ]
    (batch,) = pack([PromptSamples(prompt, samples)], BatchSpec())
    got = model.logprobs(batch, want_entropy_grad=False)[0].detach()
    for number, sample in enumerate(batch.samples):
        tokens = np.concatenate([prompt, completions[sample.index]])
        want = _expected(tmp_path, tokens)
        mine = got[torch.from_numpy(batch.sequence_N == number)]
        assert torch.allclose(mine, want[len(prompt) - 1 :], atol=1e-5)
        assert model.score(tokens.tolist()) == pytest.approx(want.tolist(), abs=1e-5)


@pytest.mark.parametrize(("kind", "more", "why"), REFUSED)
def test_model_when_it_would_be_computed_wrongly_then_is_refused_by_its_config(
    kind: str, more: dict[str, Any], why: str, tmp_path: Path
) -> None:
    getattr(transformers, f"{kind}Config")(**SIZES, **more).save_pretrained(tmp_path)
    with pytest.raises(InvalidArgumentError, match=why):
        PolicyModel("p", _spec(tmp_path), seed=0, device="cpu")


def test_score_when_the_learning_pass_computes_something_else_then_shows_it(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = PolicyModel("p", _spec(tiny_model), seed=0, device="cpu")
    before = model.score([5, 9, 12, 7])

    def attends_to_itself_alone(module: Any, *heads: Any, tree: Any = None, **kwargs: Any) -> Any:
        if tree is None:
            return attend(module, *heads, **kwargs)
        return heads[2].repeat_interleave(2, dim=1).transpose(1, 2), None

    monkeypatch.setitem(AttentionInterface._global_mapping, NAME, attends_to_itself_alone)
    assert model.score([5, 9, 12, 7]) != pytest.approx(before, abs=0.1)
