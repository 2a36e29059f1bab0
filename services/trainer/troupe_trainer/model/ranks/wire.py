"""Encodes rank 0's messages to the other ranks: a JSON document and tensors. Never pickle.

The ranks meet at an open port, so a message must be data and nothing else. The document is the
same for all and names each tensor's dtype and length. A share's tensors follow it, for each rank
its own; those of a state move while the ranks restore it, tensor by tensor, and of a stored one
each rank reads its own rows.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from troupe.api.records.v1.records_pb2 import ImageData
from troupe.tasks.content import ImagePart
from troupe.vision.wire import image_from_proto, image_table
from troupe_trainer.model.learner_state import LearnerState
from troupe_trainer.model.shares import Dealt, from_arrays, to_arrays
from troupe_trainer.model.stored import StoredTensors

Message = tuple[str, str, tuple[Any, ...]]
"""Policy, method, arguments."""

Receive = Callable[[tuple[int, ...], torch.dtype], Tensor]
"""Gives the next tensor of a shape and dtype that rank 0 sends."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A message: its document, and a function that gives a rank's tensors in order."""

    document: bytes
    tensors_of: Callable[[int], Sequence[Tensor]]


def encode(message: Message, num_ranks: int) -> Encoded:
    """``message`` for ``num_ranks`` ranks; a rank's tensors are made when they are asked for.

    Raises:
        TypeError: an argument is not JSON, images, shares or a state.
    """
    policy, method, arguments = message
    arguments_json = [_put(argument, num_ranks) for argument in arguments]
    document = json.dumps({"policy": policy, "method": method, "arguments": arguments_json})

    def tensors_of(rank: int) -> list[Tensor]:
        dealt = [argument for argument in arguments if isinstance(argument, Dealt)]
        return [
            torch.from_numpy(array)
            for deal in dealt
            for array in to_arrays(deal.shares[rank]).values()
        ]

    return Encoded(document.encode(), tensors_of)


def decode(document: bytes, rank: int, receive: Receive) -> Message:
    """The message that ``encode`` was given, with the share of ``rank`` for a deal.

    A state comes with tensors on "meta": its numbers are given out when it is restored.

    Raises:
        ConnectionError: these bytes are not a message.
    """
    try:
        body = json.loads(document)
        arguments = [_take(argument, rank, receive) for argument in body["arguments"]]
        return str(body["policy"]), str(body["method"]), tuple(arguments)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ConnectionError(f"what came from rank 0 is no message: {error}") from error


def _put(argument: Any, num_ranks: int) -> Any:
    if isinstance(argument, LearnerState) and isinstance(argument.tensors, StoredTensors):
        return {
            "kind": "stored",
            "files": [str(path) for path in argument.tensors.files],
            "optimizer_step": argument.optimizer_step,
            "base": argument.base,
        }
    if isinstance(argument, LearnerState):
        return {
            "kind": "state",
            "tensors": {n: [_name(t), list(t.shape)] for n, t in argument.tensors.items()},
            "optimizer_step": argument.optimizer_step,
            "base": argument.base,
        }
    if isinstance(argument, Dealt):
        if len(argument.shares) != num_ranks:
            raise TypeError(f"{len(argument.shares)} shares for {num_ranks} ranks")
        return {"kind": "shares", "sizes": [_sizes(shares) for shares in argument.shares]}
    if isinstance(argument, tuple) and argument and isinstance(argument[0], ImagePart):
        entries = image_table(cast("tuple[ImagePart, ...]", argument))
        return {"kind": "images", "entries": [_text(entry) for entry in entries]}
    return {"kind": "json", "value": argument}


def _sizes(shares: Any) -> dict[str, list[Any]]:
    """Dtype and length of each array of a rank's shares."""
    return {name: [str(a.dtype), len(a)] for name, a in to_arrays(shares).items()}


def _take(argument: Any, rank: int, receive: Receive) -> Any:
    kind = argument["kind"]
    if kind == "json":
        return argument["value"]
    if kind == "images":
        entries = (ImageData.FromString(b64decode(text)) for text in argument["entries"])
        return tuple(image_from_proto(entry) for entry in entries)
    if kind == "stored":
        stored = StoredTensors([Path(path) for path in argument["files"]])
        return LearnerState(stored, argument["optimizer_step"], argument["base"])
    if kind == "state":
        state = {
            name: torch.empty(shape, dtype=_dtype(dtype), device="meta")
            for name, (dtype, shape) in argument["tensors"].items()
        }
        return LearnerState(state, argument["optimizer_step"], argument["base"])
    if kind == "shares":
        arrays = {
            name: receive((length,), _dtype(dtype)).numpy()
            for name, (dtype, length) in argument["sizes"][rank].items()
        }
        return from_arrays(arrays)
    raise ValueError(f"an argument of the kind {kind!r}")


def _text(entry: ImageData) -> str:
    return b64encode(entry.SerializeToString()).decode()


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"a dtype {name!r}")
    return dtype
