"""Encodes rank 0's messages to the other ranks as safetensors documents. Never pickle.

The ranks meet at an open port, so a message must be data and nothing else. Its tensors are those
of a state and the groups' records; the rest is JSON in its metadata.
"""

import json
from collections.abc import Sequence
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from troupe.api.records.v1 import records_pb2 as pb
from troupe_trainer.model.learner_state import LearnerState
from troupe_trainer.samples import CreditedGroup, credit

Message = tuple[str, str, tuple[Any, ...]]
"""Policy, method, arguments."""

_MESSAGE = "message"


def encode(message: Message) -> bytes:
    """``message`` as bytes.

    Raises:
        TypeError: an argument is not JSON, groups or a state.
    """
    policy, method, arguments = message
    tensors: dict[str, Tensor] = {}
    arguments_json = [_put(argument, f"{at}", tensors) for at, argument in enumerate(arguments)]
    document = json.dumps({"policy": policy, "method": method, "arguments": arguments_json})
    # Always one tensor: a document without any keeps no metadata.
    return save({"": torch.zeros(1), **tensors}, metadata={_MESSAGE: document})


def decode(data: bytes) -> Message:
    """The message that ``encode`` was given.

    Raises:
        ConnectionError: these bytes are not a message.
    """
    try:
        size = int.from_bytes(data[:8], "little")
        document = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][_MESSAGE])
        tensors = load(data)
        arguments = [
            _take(argument, f"{at}", tensors) for at, argument in enumerate(document["arguments"])
        ]
        return document["policy"], document["method"], tuple(arguments)
    except (ValueError, KeyError, TypeError, SafetensorError) as error:
        raise ConnectionError(f"what came from rank 0 is no message: {error}") from error


def _put(argument: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """``argument`` as JSON; values that JSON can't hold go to ``tensors`` under ``name``."""
    if isinstance(argument, LearnerState):
        tensors |= {f"{name}/{key}": value.contiguous() for key, value in argument.tensors.items()}
        return {
            "kind": "state",
            "optimizer_step": argument.optimizer_step,
            "base": argument.base,
        }
    if isinstance(argument, Sequence) and not isinstance(argument, str):
        items = cast("Sequence[Any]", argument)
        if items and all(isinstance(item, CreditedGroup) for item in items):
            return {
                "kind": "groups",
                "groups": [_put_group(g, f"{name}/{i}", tensors) for i, g in enumerate(items)],
            }
        argument = list(items)
    return {"kind": "json", "value": argument}


def _put_group(group: CreditedGroup, name: str, tensors: dict[str, Tensor]) -> Any:
    record = bytearray(group.record.SerializeToString())
    tensors[name] = torch.frombuffer(record, dtype=torch.uint8)
    samples = [sample for prompt in group.prompts for sample in prompt.samples]
    return {
        "advantages": [float(advantage) for advantage in group.advantages],
        "temperature": samples[0].temperature if samples else 1.0,
        "drop_truncated": group.num_filtered > 0,
    }


def _take(argument: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    kind = argument["kind"]
    if kind == "json":
        return argument["value"]
    if kind == "state":
        prefix = f"{name}/"
        state = {
            key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)
        }
        return LearnerState(state, argument["optimizer_step"], argument["base"])
    if kind == "groups":
        return [_take_group(g, tensors[f"{name}/{i}"]) for i, g in enumerate(argument["groups"])]
    raise ValueError(f"an argument of the kind {kind!r}")


def _take_group(fields: Any, record: Tensor) -> CreditedGroup:
    return credit(
        pb.Group.FromString(record.numpy().tobytes()),
        fields["advantages"],
        fields["temperature"],
        drop_truncated=fields["drop_truncated"],
    )
