"""Decodes one token for every row of a Llama-like model, at little more than its arithmetic's cost.

transformers' forward pass is general; for one token per row its overhead is about a fifth of the
time on a small model. Owns a plain form of that pass for known architectures, on the module's own
parameters. Never samples and never computes prompts: the module computes those, and every model of
an unknown architecture.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.cache_utils import Cache

ARCHITECTURES = frozenset(
    {
        "LlamaForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen3ForCausalLM",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3VLForConditionalGeneration",
    }
)
"""Rotary positions, RMS norms before attention and MLP, grouped queries, a gated MLP. After the
prompt a vision-language model has one position for a token, like any other."""


class Decoder:
    """The decoding pass of one module. Legend: R rows, H heads, S size of a head, V vocabulary,
    G groups of heads with one key, Q heads of a group, C columns, D hidden size.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._model = getattr(module.model, "language_model", module.model)
        self._layers = list(self._model.layers)
        self._head_size = int(self._layers[0].self_attn.head_dim)

    @staticmethod
    def knows(module: Any) -> bool:
        """Whether ``module`` is one of `ARCHITECTURES`, in the precision of the norms' sums."""
        return type(module).__name__ in ARCHITECTURES and module.dtype == torch.float32

    def __call__(self, token_R: Tensor, position_R: Tensor, mask: Tensor, cache: Cache) -> Tensor:
        """Logits after one more token of each row, R x V.

        Args:
            token_R: the rows' last tokens.
            position_R: their places, which the rotary embedding turns them by.
            mask: added to the scores, R x 1 x 1 x columns.
            cache: see `KvPool.bind`.
        """
        model = self._model
        hidden_R1D = model.embed_tokens(token_R[:, None])
        cos_R1S, sin_R1S = model.rotary_emb(hidden_R1D, position_R[:, None])
        sin_R1S[..., : self._head_size // 2].neg_()
        for number, layer in enumerate(self._layers):
            normed = _norm(layer.input_layernorm, hidden_R1D)
            attended = self._attend(layer.self_attn, normed, cos_R1S, sin_R1S, mask, cache, number)
            hidden_R1D = hidden_R1D + attended
            hidden_R1D = hidden_R1D + _mlp(
                layer.mlp, _norm(layer.post_attention_layernorm, hidden_R1D)
            )
        return self._module.lm_head(_norm(model.norm, hidden_R1D)[:, 0])

    def _attend(
        self,
        attention: Any,
        hidden_R1D: Tensor,
        cos_R1S: Tensor,
        sin_R1S: Tensor,
        mask: Tensor,
        cache: Cache,
        number: int,
    ) -> Tensor:
        rows, size = len(hidden_R1D), self._head_size
        query_RHS = attention.q_proj.forward(hidden_R1D).view(rows, -1, size)
        key_RHS = attention.k_proj.forward(hidden_R1D).view(rows, -1, size)
        value_RHS = attention.v_proj.forward(hidden_R1D).view(rows, -1, size)
        if hasattr(attention, "q_norm"):
            query_RHS = _norm(attention.q_norm, query_RHS)
            key_RHS = _norm(attention.k_norm, key_RHS)
        query_RHS = _rotate(query_RHS, cos_R1S, sin_R1S)
        key_RHS = _rotate(key_RHS, cos_R1S, sin_R1S)
        keys, values = cache.update(key_RHS[:, :, None], value_RHS[:, :, None], number)
        groups_RGQS = query_RHS.view(rows, keys.shape[1], -1, size) * attention.scaling
        scores_RGQC = torch.matmul(groups_RGQS, keys.transpose(2, 3)).add_(mask)
        attended_RGQS = torch.matmul(torch.softmax(scores_RGQC, -1), values)
        return attention.o_proj.forward(attended_RGQS.reshape(rows, 1, -1))


def _rotate(heads_RHS: Tensor, cos_R1S: Tensor, signed_sin_R1S: Tensor) -> Tensor:
    """Rotary position embedding (arXiv 2104.09864, Eq. 34), the halves of a head as its pairs."""
    halves_swapped = heads_RHS.roll(heads_RHS.shape[-1] // 2, -1)
    return torch.addcmul(heads_RHS * cos_R1S, halves_swapped, signed_sin_R1S)


def _mlp(mlp: Any, hidden: Tensor) -> Tensor:
    gate = mlp.act_fn(mlp.gate_proj.forward(hidden))
    return mlp.down_proj.forward(gate * mlp.up_proj.forward(hidden))


def _norm(norm: Any, hidden: Tensor) -> Tensor:
    return F.rms_norm(hidden, norm.weight.shape, norm.weight, norm.variance_epsilon)
