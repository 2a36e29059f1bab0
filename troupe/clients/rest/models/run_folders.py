"""REST models of run folders: what lies there, what was imported, what retention removes."""

from typing import Annotated, Literal

from pydantic import Field

from troupe.clients.rest.models.base import Document, Parameters
from troupe.clients.rest.models.jobs import JobState

FolderStatus = Literal["listed", "unlisted", "deleted", "broken", "empty"]


class RunFolderPageQuery(Parameters):
    """Which run folders."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    """Most folders of the page."""
    cursor: Annotated[str | None, Field(max_length=61)] = None
    """`next_cursor` of the page before."""


class RunFolderDocument(Document):
    """One run folder, as its own files say."""

    name: str
    """The folder's name, which is the job's id."""
    status: FolderStatus
    """listed: a job of GET /v1/jobs; unlisted: a job that is not, import it; deleted: the job was
    deleted and its files stay; broken: see reason; empty: no job's files."""
    reason: str = ""
    """Why it is broken, or why the job's state was reached."""
    state: JobState | None = None
    """The job's state; of a listed job the present one."""
    step: int = 0
    """Learned steps."""
    created_at: float | None = None
    """When the job was submitted."""
    ended_at: float | None = None
    """When the job ended."""
    owner: str = ""
    """Name of the API key that submitted it."""
    is_pinned: bool = False
    """Retention keeps the folder."""


class RunFolderPage(Document):
    """Run folders, by name."""

    folders: list[RunFolderDocument]
    """The page."""
    next_cursor: str | None = None
    """`cursor` of the next page; null on the last."""


class ImportQuery(Parameters):
    """How run folders are imported."""

    dry_run: bool = False
    """Say what would be imported; change nothing."""
    earlier_versions: bool = False
    """Also folders that an earlier version left without job.json: which of their jobs were
    deleted is not known."""


class BrokenFolderDocument(Document):
    """A run folder whose job can't be listed."""

    name: str
    """The folder's name."""
    reason: str
    """What is wrong."""


class ImportDocument(Document):
    """What an import did, or would do."""

    dry_run: bool
    """Whether nothing was changed."""
    imported: list[str]
    """Jobs that are listed again. One that had not ended is paused: resume it."""
    known: int
    """Run folders of jobs that were listed before."""
    broken: list[BrokenFolderDocument]
    """Folders that could not be imported."""


class PruneQuery(Parameters):
    """What run folders may take together; at least one limit."""

    max_age_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Jobs that ended longer ago go; 0: no limit."""
    max_jobs: Annotated[int, Field(ge=0)] = 0
    """Run folders that stay; 0: no limit."""
    max_bytes: Annotated[int, Field(ge=0)] = 0
    """Bytes that stay; 0: no limit."""
    resumable_s: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    """A job that can be resumed stays for so long; left out: as the router's setting says."""
    dry_run: bool = False
    """Say what would be removed; remove nothing."""


class PrunedFolderDocument(Document):
    """One run folder that retention removes."""

    name: str
    """The job."""
    state: JobState
    """Its state."""
    rested_at: float
    """When it came to that state."""
    size_bytes: int
    """Its size on disk."""
    why: Literal["age", "number", "size"]
    """The limit that it exceeds."""


class ProtectedFolderDocument(Document):
    """One run folder that is older than the limit and stays."""

    name: str
    """The job."""
    reason: str
    """Why it stays."""


class PruneDocument(Document):
    """What was removed, or would be."""

    dry_run: bool
    """Whether nothing was removed."""
    used_bytes: int
    """On disk in all run folders before."""
    freed_bytes: int
    """Of these, in the removed folders."""
    removed: list[PrunedFolderDocument]
    """Oldest first."""
    protected: list[ProtectedFolderDocument]
    """Too old, and kept."""
