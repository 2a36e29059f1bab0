"""Says where in a user's code an exception came from."""

import traceback
from pathlib import Path


def user_error(error: BaseException, folder: Path) -> str:
    """What an exception of bundled code says, with its last line in ``folder``."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_in(f.filename, folder)]
    at = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"its code raised {type(error).__name__}: {error}{at}"


def _is_in(filename: str, folder: Path) -> bool:
    return Path(filename).is_relative_to(folder)
