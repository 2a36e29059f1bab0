from dataclasses import dataclass
@dataclass(frozen=True, slots=True)
class ModelShape:
    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    is_tied: bool
