#!/usr/bin/env python3
"""Builds the images, labels them, writes an SBOM for each and checks their sizes.

    python3.11 scripts/build_images.py                       # router, env, rollout, trainer, serve
    python3.11 scripts/build_images.py router env --version 0.2.0 --registry ghcr.io/acme

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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
DOCKERFILE = REPO / "deploy" / "docker" / "Dockerfile"
TARGETS = ("router", "env", "rollout", "trainer", "serve")
LARGEST_MB = {"router": 300, "env": 300}
"""Megabytes that an image may take unpacked, its base with it."""
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
    parser.add_argument("targets", nargs="*", default=list(TARGETS), metavar="TARGET")
    parser.add_argument("--version", default="0.1.0")
    parser.add_argument("--registry", default="", help="put before troupe/<target>")
    parser.add_argument("--out", type=Path, default=REPO / "build" / "images", help="for SBOMs")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--network", default="default", help="network of the build")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    revision = commit()
    sizes: dict[str, dict[str, float]] = {}
    for target in options.targets:
        prefix = f"{options.registry}/" if options.registry else ""
        image = f"{prefix}troupe/{target}:{options.version}"
        arguments = [f"VERSION={options.version}", f"REVISION={revision}", *options.build_arg]
        argv = ["docker", "build", "--file", str(DOCKERFILE), "--target", target, "--tag", image]
        argv += ["--network", options.network]
        argv += [part for argument in arguments for part in ("--build-arg", argument)]
        done = subprocess.run([*argv, str(REPO)], env={**os.environ, "DOCKER_BUILDKIT": "1"})
        if done.returncode != 0:
            print(f"images: the build of {image} failed", file=sys.stderr)
            return 1
        write_sbom(image, options.out / f"{target}.cdx.json")
        sizes[target] = measure(image)
    too_large = {
        target: size["unpacked_mb"]
        for target, size in sizes.items()
        if size["unpacked_mb"] > LARGEST_MB.get(target, float("inf"))
    }
    print(json.dumps({"revision": revision, "sizes": sizes, "too_large": too_large}))
    return 1 if too_large else 0


def commit() -> str:
    """The checkout's commit, or "unknown"."""
    argv = ["git", "-C", str(REPO), "rev-parse", "HEAD"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def write_sbom(image: str, path: Path) -> None:
    """Ask the image itself, without a network and as its own user."""
    python = "import sys; exec(sys.stdin.read())"
    listed = docker(
        ["run", "--rm", "-i", "--network=none", "--entrypoint=python", image, "-c"], python
    )
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {"type": "container", "name": image},
        },
        "components": json.loads(listed),
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def measure(image: str) -> dict[str, float]:
    """Megabytes unpacked, and compressed as a registry would store it."""
    unpacked = int(docker(["image", "inspect", "--format", "{{.Size}}", image]))
    saving = subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE)
    packing = subprocess.Popen(["gzip", "-6"], stdin=saving.stdout, stdout=subprocess.PIPE)
    compressed = 0
    assert packing.stdout is not None
    while chunk := packing.stdout.read(1 << 20):
        compressed += len(chunk)
    saving.wait()
    packing.wait()
    return {"unpacked_mb": round(unpacked / 1e6, 1), "compressed_mb": round(compressed / 1e6, 1)}


def docker(argv: Sequence[str], *more: str) -> str:
    """What a docker command prints; raises CalledProcessError."""
    done = subprocess.run(
        ["docker", *argv, *more], input=_LIST, capture_output=True, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
