"""Names that SGLang imports from its compiled kernels on a CPU. Each raises when it is called.

All of them serve speculative decoding or moves of the key/value cache, which this set-up does not
use. Without AMX, SGLang computes every layer in plain torch and asks for no kernel.
"""

from collections.abc import Callable
from typing import Any, NoReturn

_NAMES = (
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
)


def _missing(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name} does not exist on a CPU without AMX")

    refuse.__name__ = name
    return refuse


globals().update({name: _missing(name) for name in _NAMES})
