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


def test_feed_when_a_job_goes_on_after_its_end_then_follows_from_there() -> None:
    said = said_by_page(
        OPEN
        + """
        for (const step of [0, 1]) say("step.recorded", { step, loss: 1 });
        say("job.state", { state: "failed" });
        job.state = "failed";
        await bring();
        await breakOff();
        feed.meet({ state: "running", life: 1 }); // an answer from before the end
        const links = [feed.link];
        feed.meet({ state: "queued", life: 2 });
        links.push(feed.link);
        Object.assign(job, { state: "running", life: 2 });
        say("job.state", { state: "running" });
        for (const step of [1, 2]) say("step.recorded", { step, loss: 2 });
        await bring();
        links.push(feed.link);
        tell({ opened, links, steps: steps(feed), losses: feed.tables.train.series.loss });
        """
    )
    assert said["opened"] == ["0", "3-0"]
    assert said["links"] == ["over", "loading", "live"]
    assert (said["steps"], said["losses"]) == ([0, 1, 2], [1, 2, 2])


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


def test_charts_when_the_series_could_not_be_had_then_they_are_asked_for_again() -> None:
    said = said_by_page(
        """
        down.add("metrics");
        """
        + OPEN
        + """
        const faults = [Boolean(feed.error)];
        say("step.recorded", { step: 0 });
        await bring(); // the stream opens: asked for again
        await pass(3000);
        faults.push(Boolean(feed.error));
        down.clear();
        await pass(3000);
        faults.push(Boolean(feed.error));
        await pass(30000);
        tell({ faults, asked, panels: feed.panels, steps: steps(feed) });
        """
    )
    assert said["faults"] == [True, True, False]
    assert said["asked"] == ["metrics"] * 4
    assert (said["panels"], said["steps"]) == ([1], [0])


def test_charts_when_their_page_is_closed_then_nothing_is_asked_for() -> None:
    said = said_by_page(
        """
        down.add("metrics");
        """
        + OPEN
        + """
        feed.close();
        await pass(30000);
        tell({ asked, waiting: clock.timers.size });
        """
    )
    assert said == {"asked": ["metrics"], "waiting": 0}


def test_event_when_it_is_of_the_jobs_past_then_is_not_new() -> None:
    said = said_by_page(
        OPEN
        + """
        const now = Date.now() / 1000;
        tell([-100, 100].map((s) => feed.isNew({ occurred_at: now + s })));
        """
    )
    assert said == [False, True]


def test_steps_when_learnt_again_and_the_browsers_clock_is_ahead_then_are_replaced() -> None:
    said = said_by_page(
        """
        ahead = 600_000;
        """
        + OPEN
        + """
        for (const loss of [1, 2]) for (const step of [0, 1]) say("step.recorded", { step, loss });
        await bring();
        tell({ steps: steps(feed), losses: feed.tables.train.series.loss });
        """
    )
    assert said == {"steps": [0, 1], "losses": [2, 2]}


def test_pace_when_asked_many_times_then_acts_at_once_and_once_more() -> None:
    said = said_by_page(
        """
        const { paced } = await take("pace.js");
        const acts = [];
        const { ask, stop } = paced(() => acts.push(clock.now), 1000);
        for (let i = 0; i < 90; i++) ask();
        await pass(5000);
        ask();
        ask();
        stop();
        await pass(5000);
        tell(acts);
        """
    )
    assert said == [0, 1000, 5000]
