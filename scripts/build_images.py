#!/usr/bin/env python3
"""Builds the images, labels them, writes an SBOM for each and checks their sizes.

    python3.11 scripts/build_images.py                       # router, env, rollout, trainer, serve
    python3.11 scripts/build_images.py router trainer-cuda --version 0.2.0 --registry ghcr.io/acme
    python3.11 scripts/build_images.py --list                # all names, as one line of JSON

An image is `<registry>/troupe/<name>:<version>`; IMAGES has all that chart and compose files name.
The SBOM (CycloneDX 1.6, JSON) lists the Python and the Debian packages of the image as it is. One
JSON line with sizes comes last. Exit 1: a build failed or an image is too large.
"""

import argparse
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
DOCKERFILE = REPO / "deploy" / "docker" / "Dockerfile"
CPU_TORCH = "https://download.pytorch.org/whl/cpu"
"""Index of torch's wheels without CUDA."""
SGLANG_PYTHONS = ("/opt/troupe/bin/python", "python3")
"""Troupe's own beside SGLang's, that of its image."""


@dataclass(frozen=True)
class Image:
    """How an image is made from the Dockerfile."""

    target: str
    torch_index: str = ""
    """Index of torch's wheels beside PyPI, whose own have CUDA."""
    largest_mb: int | None = None
    """Megabytes that it may take unpacked, its base with it."""
    for_gpus: bool = False
    """Many gigabytes, so built only when it is named."""
    pythons: tuple[str, ...] = ("/opt/troupe/bin/python",)
    """Whose packages the SBOM lists."""


IMAGES = {
    "router": Image("router", largest_mb=300),
    "env": Image("env", largest_mb=300),
    "rollout": Image("rollout", CPU_TORCH),
    "trainer": Image("trainer", CPU_TORCH),
    "serve": Image("serve", CPU_TORCH),
    "trainer-cuda": Image("trainer", for_gpus=True),
    "rollout-sglang": Image("rollout-sglang", for_gpus=True, pythons=SGLANG_PYTHONS),
    "serve-sglang": Image("serve-sglang", for_gpus=True, pythons=SGLANG_PYTHONS),
}
"""All images by name: releases publish each, chart and compose files name no other."""
_LIST = """
import importlib.metadata as m, json, pathlib
found = [{"type": "library", "name": d.name, "version": d.version,
          "purl": f"pkg:pypi/{d.name.lower()}@{d.version}"} for d in m.distributions()]
status = pathlib.Path("/var/lib/dpkg/status")
for block in (status.read_text().split("\\n\\n") if status.exists() else []):
    fields = dict(line.split(": ", 1) for line in block.splitlines()
                  if ": " in line and line[0] != " ")
    if "installed" in fields.get("Status", ""):
        name, version = fields["Package"], fields["Version"]
        found.append({"type": "library", "name": name, "version": version,
                      "purl": f"pkg:deb/debian/{name}@{version}"})
print(json.dumps(found))
"""


def main() -> int:
    """Build what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: those without CUDA")
    parser.add_argument("--list", action="store_true", help="print all names and build nothing")
    parser.add_argument("--version", default="0.1.0")
    parser.add_argument("--registry", default="", help="put before troupe/NAME")
    parser.add_argument("--out", type=Path, default=REPO / "build" / "images", help="for SBOMs")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--network", default="default", help="network of the build")
    options = parser.parse_args()
    if options.list:
        print(json.dumps(list(IMAGES)))
        return 0
    names = options.names or [name for name, image in IMAGES.items() if not image.for_gpus]
    if unknown := [name for name in names if name not in IMAGES]:
        parser.error(f"no image is called {unknown[0]!r}; there are {', '.join(IMAGES)}")
    options.out.mkdir(parents=True, exist_ok=True)
    revision = commit()
    sizes: dict[str, dict[str, float]] = {}
    for name in names:
        prefix = f"{options.registry}/" if options.registry else ""
        tag = f"{prefix}troupe/{name}:{options.version}"
        arguments = [f"VERSION={options.version}", f"REVISION={revision}"]
        argv = build_argv(name, tag, [*arguments, *options.build_arg], options.network)
        done = subprocess.run(argv, env={**os.environ, "DOCKER_BUILDKIT": "1"})
        if done.returncode != 0:
            print(f"images: the build of {tag} failed", file=sys.stderr)
            return 1
        write_sbom(tag, IMAGES[name].pythons, options.out / f"{name}.cdx.json")
        sizes[name] = measure(tag, is_packed=not IMAGES[name].for_gpus)
    too_large = {
        name: size["unpacked_mb"]
        for name, size in sizes.items()
        if size["unpacked_mb"] > (IMAGES[name].largest_mb or float("inf"))
    }
    print(json.dumps({"revision": revision, "sizes": sizes, "too_large": too_large}))
    return 1 if too_large else 0


def build_argv(name: str, tag: str, arguments: Sequence[str], network: str) -> list[str]:
    """The docker command for one image; of two arguments of one name the later holds."""
    image = IMAGES[name]
    argv = ["docker", "build", "--file", str(DOCKERFILE), "--target", image.target, "--tag", tag]
    argv += ["--network", network]
    for argument in (f"TORCH_INDEX={image.torch_index}", *arguments):
        argv += ["--build-arg", argument]
    return [*argv, str(REPO)]


def commit() -> str:
    """The checkout's commit, or "unknown"."""
    argv = ["git", "-C", str(REPO), "rev-parse", "HEAD"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def write_sbom(image: str, pythons: Sequence[str], path: Path) -> None:
    """Ask the image itself, without a network and as its own user."""
    found: dict[str, dict[str, str]] = {}
    for python in pythons:
        argv = ["run", "--rm", "-i", "--network=none", f"--entrypoint={python}", image, "-c"]
        listed = docker([*argv, "import sys; exec(sys.stdin.read())"])
        found |= {package["purl"]: package for package in json.loads(listed)}
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {"type": "container", "name": image},
        },
        "components": list(found.values()),
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def measure(image: str, *, is_packed: bool) -> dict[str, float]:
    """Megabytes unpacked, and with ``is_packed`` also compressed as a registry would store it."""
    unpacked = int(docker(["image", "inspect", "--format", "{{.Size}}", image]))
    if not is_packed:
        return {"unpacked_mb": round(unpacked / 1e6, 1)}
    saving = subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE)
    packing = subprocess.Popen(["gzip", "-6"], stdin=saving.stdout, stdout=subprocess.PIPE)
    compressed = 0
    assert packing.stdout is not None
    while chunk := packing.stdout.read(1 << 20):
        compressed += len(chunk)
    saving.wait()
    packing.wait()
    return {"unpacked_mb": round(unpacked / 1e6, 1), "compressed_mb": round(compressed / 1e6, 1)}


def docker(argv: Sequence[str]) -> str:
    """What a docker command prints; raises CalledProcessError."""
    done = subprocess.run(
        ["docker", *argv], input=_LIST, capture_output=True, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
