"""Runs inside the sandbox: builds a module with pyosys and prints stages and gates.

Its text is sent as the program; it imports nothing of Troupe.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STAGES = (
    ("P", ("read_verilog -sv design.sv",)),
    ("E", ("hierarchy -check -top {top}", "proc", "flatten", "opt_clean")),
    ("L", ("select -assert-none t:$dlatch t:$adlatch t:$dlatchsr t:$sr",)),
    (
        "S",
        (
            "setattr -unset init w:*",
            "opt",
            "memory_map",
            "opt",
            "async2sync",
            "techmap",
            "opt",
            "dfflegalize -cell $_DFF_P_ x",
            "simplemap",
            "opt_clean",
            "check -assert",
            "write_json gates.json",
        ),
    ),
)


def build(folders: tuple[str, ...], source: str, top: str) -> None:
    """Print the letters of the stages that succeed, a line end, and the gates."""
    out = os.dup(1)
    null = os.open("/dev/null", os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    with open("design.sv", "w", encoding="utf-8") as stream:  # noqa: PTH123
        stream.write(source)
    tool = loaded(folders)
    design = tool.Design()
    os.write(out, b"R")
    for letter, passes in STAGES:
        for text in passes:
            tool.run_pass(text.format(top=top), design)
        os.write(out, letter.encode())
    with open("gates.json", encoding="utf-8") as stream:  # noqa: PTH123
        module = json.load(stream)["modules"][top]
    ports = {name: (port["direction"], port["bits"]) for name, port in module["ports"].items()}
    cells = [
        (cell["type"], {pin: bits[0] for pin, bits in cell["connections"].items()})
        for cell in module["cells"].values()
        if cell["type"] != "$scopeinfo"
    ]
    text = json.dumps({"ports": ports, "cells": cells}, separators=(",", ":"))
    with os.fdopen(out, "w", encoding="utf-8") as stream:
        stream.write("\n" + text)


def loaded(folders: tuple[str, ...]) -> Any:
    """pyosys out of the first of ``folders`` that is there, without its neighbours."""
    folder = next(folder for folder in folders if os.path.isdir(folder))  # noqa: PTH112
    spec = importlib.util.spec_from_file_location(
        "pyosys",
        f"{folder}/__init__.py",
        submodule_search_locations=[folder],
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["pyosys"] = package
    spec.loader.exec_module(package)
    return importlib.import_module("pyosys.libyosys")
