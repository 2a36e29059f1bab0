"""What a part of the suite is told and what it answers.

Owns the options that parts share. A part is a module with a command; its last line is one JSON
object with ``goals``; or with ``skipped`` and why; or with ``unfinished`` and why beside them, and
then it is tried again.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Device = str
"""``cuda`` or ``cpu``."""


@dataclass(frozen=True)
class PartOptions:
    """Options of a part. ``seconds``: it ends by itself before so long; ``before``: rows that an
    unfinished call at this commit has measured."""

    device: Device
    quick: bool
    model: str
    seconds: float
    before: Sequence[dict[str, Any]] = ()


def run_part(description: str | None, measure: Callable[[PartOptions], dict[str, Any]]) -> None:
    """Read the options, measure, and print the result as the last line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--model", default="", help="folder or hub id; empty: random weights")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--before", type=json.loads, default=[], help="rows measured before")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    options = PartOptions(args.device, args.quick, args.model, args.seconds, args.before)
    print(json.dumps(measure(options)))


def name_of(device: Device) -> str:
    """The card's name, or ``cpu``."""
    return torch.cuda.get_device_name(0) if device == "cuda" else "cpu"


def synchronize(device: Device) -> None:
    """Wait for what was queued on an accelerator, before a clock is read."""
    if device == "cuda":
        torch.cuda.synchronize()
