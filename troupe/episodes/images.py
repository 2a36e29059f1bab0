"""The images that recorded episodes show, in a run folder: ``episodes/images/<digest>.png``.

Owns these files: each is written once, from the pixels that its digest is of, and named by nothing
else. The digest of an image is checked before it becomes a part of a path.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from troupe.api.records.v1 import records_pb2 as pb
from troupe.durable import make_folder, put_files
from troupe.errors import InvalidArgumentError
from troupe.vision.png import encode_png
from troupe.vision.wire import image_from_proto

_DIGEST = re.compile(r"[0-9a-f]{64}")


def image_file(run_dir: Path, digest: str) -> Path:
    """The file of an image; raises InvalidArgumentError for what is no digest of one."""
    if not _DIGEST.fullmatch(digest):
        raise InvalidArgumentError(
            f"{digest[:80]!r} is no digest of an image; give the 64 hex digits of an episode's."
        )
    return run_dir / "episodes" / "images" / f"{digest}.png"


def keep_images(run_dir: Path, episodes: Iterable[pb.Episode]) -> None:
    """Write the images of ``episodes`` that are not there yet; they are on the disk then.

    Raises:
        InvalidArgumentError: an image holds other pixels than its digest says.
        OSError: the disk is full or failing, or the folder is a link to elsewhere.
    """
    images = {image.digest: image for episode in episodes for image in episode.images}
    files = {image_file(run_dir, digest): image for digest, image in images.items()}
    missing = {path: image for path, image in files.items() if not _is_there(path)}
    if not missing:
        return
    folder = next(iter(missing)).parent
    if not folder.resolve().is_relative_to(run_dir.resolve()):
        raise OSError(f"{folder} leads out of the run folder; remove the link")
    make_folder(folder)
    put_files({path: encode_png(image_from_proto(image)) for path, image in missing.items()})


def _is_there(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
