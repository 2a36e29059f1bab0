"""The page follows a job to its end and on, and asks for no more than it must."""

from page_scripts import said_by_page

OPEN = """
const { Feed } = await take("job/feed.js");
const feed = new Feed("demo-1");
feed.open();
await settle();
"""


def test_feed_when_the_connection_breaks_while_the_job_ends_then_the_last_steps_come() -> None:
    said = said_by_page(
        OPEN
        + """
        say("step.recorded", { step: 0 });
        await bring();
        say("step.recorded", { step: 1 });
        say("job.state", { state: "succeeded" });
        job.state = "succeeded";
        await breakOff();
        const before = feed.link;
        await bring();
        await breakOff();
        tell({ opened, before, link: feed.link, steps: steps(feed) });
        """
    )
    assert said == {"opened": ["0", "1-0"], "before": "live", "link": "over", "steps": [0, 1]}


def test_feed_when_a_job_ended_without_saying_so_then_is_over_after_a_second_look() -> None:
    said = said_by_page(
        OPEN
        + """
        job.state = "failed";
        await bring();
        await breakOff();
        const links = [feed.link];
        await breakOff(); // this one was never opened, so it said nothing of news
        links.push(feed.link);
        await pass(3000);
        await bring();
        await breakOff();
        tell({ num: opened.length, links: [...links, feed.link] });
        """
    )
    assert said == {"num": 3, "links": ["live", "lost", "over"]}


def test_feed_when_a_job_that_went_on_breaks_off_at_once_then_is_not_over() -> None:
    said = said_by_page(
        OPEN
        + """
        say("job.state", { state: "failed" });
        await bring();
        await breakOff(); // resumed already
        say("step.recorded", { step: 0 });
        job.state = "succeeded";
        await pass(3000);
        await breakOff();
        const link = feed.link;
        await pass(3000);
        await bring();
        tell({ link, steps: steps(feed) });
        """
    )
    assert said == {"link": "lost", "steps": [0]}
