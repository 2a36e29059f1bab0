"""The page listens to every type of event that a job can say."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
APP = ROOT / "services" / "router" / "troupe_router" / "web" / "page" / "app"
_SAID = re.compile(r"""emit\(\s*"([a-z]+\.[a-z_]+)\"""")


def said() -> set[str]:
    """Types in the calls of ``EventLog.emit`` of all services."""
    files = (ROOT / "services").rglob("*.py")
    return {name for path in files for name in _SAID.findall(path.read_text("utf-8"))}


def heard() -> set[str]:
    text = (APP / "events.js").read_text("utf-8")
    listed = text[text.index("const TYPES = [") : text.index("];")]
    return set(re.findall(r'"([a-z.]+[a-z_.]*)"', listed))


def test_every_event_that_a_service_says_is_one_that_the_page_listens_to() -> None:
    assert {"job.state", "step.learned", "weights.refused", "checkpoint.failed"} <= said()
    assert said() - heard() == set()


def test_every_warning_of_the_page_is_an_event_that_it_listens_to() -> None:
    text = (APP / "job" / "event_list.js").read_text("utf-8")
    loud = set(re.findall(r'"([a-z_.]+)"', text[text.index("const LOUD") : text.index("];")]))
    assert "learning.flat" in loud
    assert loud - heard() == set()
