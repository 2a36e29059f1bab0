"""The version of the records that a process writes, and the refusal of newer ones.

Fields are only added to a record's message, so a reader of an older version still works, and the
version stays. It grows when the meaning of a record changes: then an older process must stop and
report it, rather than act on what it misreads. Owns the number, its field and the error message.
Never decides what happens to a refused record: it stays where it is.
"""

from collections.abc import Mapping

from troupe.errors import JobFailedError

RECORD_VERSION = 1
"""Version of stream entries and job records that this code writes, and the newest that it reads."""

VERSION_FIELD = b"v"
"""Field beside a payload or in a record's hash; a record without it has version 1."""


class NewerRecordError(JobFailedError):
    """A newer version of Troupe wrote the record; nothing of it was read."""

    code = "FAILED_PRECONDITION"
    http_status = 409
    reason = "NEWER_RECORD"


def check_version(fields: Mapping[bytes, bytes], what: str) -> None:
    """Refuse a record of a newer version.

    Args:
        fields: Of the entry or hash.
        what: The record's name for people, "entry 5-0 of the tickets of job 'a'".

    Raises:
        NewerRecordError: its version is higher than RECORD_VERSION, or is not a number.
    """
    version = fields.get(VERSION_FIELD, b"1")
    if version.isdigit() and 1 <= int(version) <= RECORD_VERSION:
        return
    raise NewerRecordError(
        f"{what} has record version {version.decode(errors='replace')[:20]}, and this process "
        f"reads up to {RECORD_VERSION}: a newer version of Troupe wrote it. It was left as it is. "
        "Run this process from the newer version, or let the job end there first."
    )
