"""Names of the places where teams are: ``hub:``, ``oci:``, ``folder:``. Pure text."""

import re
from dataclasses import dataclass
from typing import Literal

from troupe.errors import InvalidArgumentError
from troupe.ids import is_hub_id

_HUB = re.compile(r"([^/@]+/[^/@]+)(?:@([\w./-]{1,100}))?", re.ASCII)
_HOST = r"[A-Za-z0-9.-]+(?::[0-9]{1,5})?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_OCI = re.compile(
    rf"({_HOST})/({_PART}(?:/{_PART})*)(?::([\w][\w.-]{{0,127}})|@(sha256:[0-9a-f]{{64}}))?",
    re.ASCII,
)
_FORMS = "hub:ORG/NAME, oci:HOST/REPOSITORY:TAG or folder:PATH"


@dataclass(frozen=True, slots=True)
class HubPlace:
    """A repository of the hub. Example: ``HubPlace("org/team", "main")``."""

    repo: str
    revision: str = ""

    def __str__(self) -> str:
        return f"hub:{self.repo}" + (f"@{self.revision}" if self.revision else "")


@dataclass(frozen=True, slots=True)
class OciPlace:
    """An artifact of a registry; ``reference`` is a tag or a digest.

    Example: ``OciPlace("127.0.0.1:5000", "team/pair", "v1")``.
    """

    host: str
    repository: str
    reference: str = "latest"

    def __str__(self) -> str:
        mark = "@" if self.reference.startswith("sha256:") else ":"
        return f"oci:{self.host}/{self.repository}{mark}{self.reference}"


@dataclass(frozen=True, slots=True)
class FolderPlace:
    """A folder of this machine."""

    path: str

    def __str__(self) -> str:
        return f"folder:{self.path}"


Place = HubPlace | OciPlace | FolderPlace


def read_place(text: str) -> Place:
    """The place that ``text`` names; raises InvalidArgumentError."""
    kind, _, rest = text.partition(":")
    if kind == "folder" and rest:
        return FolderPlace(rest)
    if kind == "hub" and (match := _HUB.fullmatch(rest)) and is_hub_id(match[1]):
        return HubPlace(match[1], match[2] or "")
    if kind == "oci" and (match := _OCI.fullmatch(rest)):
        return OciPlace(match[1], match[2], match[4] or match[3] or "latest")
    raise InvalidArgumentError(f"'{text}' names no place for a team; give {_FORMS}")


def place_kind(text: str) -> Literal["hub", "oci", "folder", ""]:
    """How ``text`` begins; "" for anything else, such as a path."""
    kind = text.partition(":")[0]
    return kind if kind in ("hub", "oci", "folder") else ""
