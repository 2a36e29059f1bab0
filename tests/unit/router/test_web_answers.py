"""What the page asks again, what it refuses to send, and what it shows of time."""

import pytest
from page_scripts import said_by_page

ASK = """
const { ask } = await take("api.js");
const got = [];
const take_it = ({ data, error }) => got.push(data ? "plan" : error.reason);
const end = ask("/v1/jobs?dry_run=true", { method: "POST", body: "{}" }, take_it);
await settle();
"""


def test_plan_when_the_router_could_not_be_reached_then_is_asked_for_until_it_comes() -> None:
    said = said_by_page(
        'down.add("job");'
        + ASK
        + """
        await pass(3000);
        down.clear();
        await pass(3000);
        await pass(30000);
        tell({ got, num: asked.length });
        """
    )
    assert said == {"got": ["UNREACHABLE", "UNREACHABLE", "plan"], "num": 3}


def test_plan_when_the_spec_changed_meanwhile_then_is_asked_for_no_more() -> None:
    said = said_by_page(
        'down.add("job");'
        + ASK
        + """
        end();
        await pass(30000);
        tell({ got, num: asked.length });
        """
    )
    assert said == {"got": ["UNREACHABLE"], "num": 1}


def test_spec_when_a_browser_changes_its_numbers_then_each_is_a_fault() -> None:
    said = said_by_page(
        """
        const { inexact } = await take("whole_numbers.js");
        const written = '{"seed": 9007199254740993, "task": {"a/b": [1, -9223372036854775807]}, '
          + '"most": 9007199254740991, "far": 1e30, "part": 0.5, "name": "x", "none": null}';
        tell(inexact(JSON.parse(written)).map(({ pointer }) => pointer));
        """
    )
    assert said == ["/seed", "/task/a~1b/1"]


@pytest.mark.parametrize(
    ("state", "ended_at", "seconds"),
    [
        ("running", None, 90),
        ("cancelling", None, 90),
        ("paused", None, None),
        ("queued", None, None),
        ("failed", 40, 30),
    ],
)
def test_job_when_it_waits_then_no_clock_runs(
    state: str, ended_at: int | None, seconds: int | None
) -> None:
    ended = "null" if ended_at is None else ended_at
    said = said_by_page(
        f"""
        const {{ ranFor }} = await take("format.js");
        tell(ranFor({{ state: "{state}", started_at: 10, ended_at: {ended} }}, 100));
        """
    )
    assert said == seconds
