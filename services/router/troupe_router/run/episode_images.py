"""Reads the images of recorded episodes from a run folder. Never writes."""

from pathlib import Path

from troupe.episodes.images import image_file
from troupe.errors import NotFoundError
from troupe.tasks.content import MAX_PNG_BYTES
from troupe_router.run.paths import is_within
from troupe_router.run.record_lines import open_plain


def read_image(run_dir: Path, digest: str) -> bytes:
    """The PNG of the image ``digest``.

    Raises:
        InvalidArgumentError: it is no digest.
        NotFoundError: no recorded episode shows it.
    """
    path = image_file(run_dir, digest)
    file = open_plain(path) if is_within(run_dir, path) else None
    if file is None:
        raise NotFoundError(
            f"no recorded episode of this job shows the image {digest[:12]}; a recording fraction "
            "below 1 leaves episodes and their images out"
        )
    with file:
        return file.read(MAX_PNG_BYTES)
