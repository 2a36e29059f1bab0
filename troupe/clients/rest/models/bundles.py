"""REST models of bundles: the code that jobs bring along."""

from pydantic import ConfigDict

from troupe.clients.rest.models.base import Document


class BundleDocument(Document):
    """An uploaded bundle."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "digest": f"sha256:{'0' * 64}",
                "size_bytes": 10240,
                "files": ["my_task.py"],
                "uploaded_at": 1794000000.0,
                "owners": ["ci"],
                "has_requirements": False,
            }
        }
    )

    digest: str
    """`sha256:` and 64 hexadecimal digits: what `bundle.digest` of a job spec names."""
    size_bytes: int
    """Size of the archive."""
    files: list[str]
    """Names of its files."""
    uploaded_at: float
    """When it was uploaded first."""
    owners: list[str]
    """Names of the API keys that uploaded it."""
    has_requirements: bool = False
    """Whether it asks for packages (`requirements.lock`)."""


class BundleList(Document):
    """Bundles that the caller uploaded, by digest; with the scope admin all of them."""

    bundles: list[BundleDocument]
    """The bundles."""
