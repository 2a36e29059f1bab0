"""Every page of the web page shows what a real job did."""

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
from router_world import RouterWorld

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = pytest.mark.timeout(900)


def test_jobs_page_with_a_finished_job_shows_its_state_and_success(
    page: "Page", job: str, photograph: Callable[..., None]
) -> None:
    page.goto("/")
    row = page.locator("tr", has_text=job)
    assert row.locator("[data-state]").inner_text() == "succeeded"
    assert "3 / 3" in row.inner_text()
    row.locator("[data-label=Success]", has_text=re.compile(r"\d+ %")).wait_for()
    photograph(page, "jobs")


@pytest.mark.parametrize("name", ["jobs", "episodes"])
def test_longer_list_when_rows_come_in_then_none_between_is_missing(
    page: "Page", job: str, world: RouterWorld, name: str
) -> None:
    running = world.client.get(f"/v1/jobs/{job}").json() | {"state": "running", "ended_at": None}
    row, key, place, path = running, "job_id", "/", r"/v1/jobs\?"
    if name == "episodes":
        row = world.client.get(f"/v1/jobs/{job}/episodes").json()["episodes"][0]
        key, place, path = "id", f"/jobs/{job}/episodes", r"/episodes\?"
    rows = [row | {key: f"row-{i}"} for i in range(259, 99, -1)]

    def answer(route: "Route") -> None:
        asked = parse_qs(urlsplit(route.request.url).query)
        limit, before = int(asked["limit"][0]), asked.get("cursor", ["row-999"])[0]
        left = [found for found in rows if found[key] < before]
        after = left[limit - 1][key] if len(left) > limit else None
        route.fulfill(json={name: left[:limit], "next_cursor": after, "total": len(rows)})

    page.route(re.compile(path), answer)
    page.route(re.compile(f"/v1/jobs/{job}$"), lambda route: route.fulfill(json=running))
    page.goto(place)
    page.get_by_role("button", name=re.compile("^Show ")).click()
    page.locator("a[href$=row-160]").wait_for()
    rows[:0] = [row | {key: f"row-{i}"} for i in range(319, 259, -1)]
    page.locator("a[href$=row-319]").wait_for()
    shown = page.locator("tbody a.job-name").evaluate_all(
        "list => list.map(link => link.getAttribute('href').split('/').pop())"
    )
    assert len(shown) == 100
    assert shown == [found[key] for found in rows[:100]]


def test_job_page_shows_charts_of_every_measured_number(
    page: "Page", job: str, world: RouterWorld, photograph: Callable[..., None]
) -> None:
    page.goto(f"/jobs/{job}")
    page.locator("[data-chart=phases] canvas").wait_for()
    drawn = page.locator("[data-chart] canvas").evaluate_all(
        "list => list.map(one => one.closest('[data-chart]').dataset.chart)"
    )
    assert {"success", "reward", "kl", "entropy", "clip", "grad", "phases", "tokens"} <= set(drawn)
    assert {"lengths", "staleness", "groups"} <= set(drawn)
    metrics = world.client.get(f"/v1/jobs/{job}/metrics").json()
    entropy = metrics["train"]["series"]["entropy"][-1]
    legend = page.locator("[data-chart=entropy] .u-legend").inner_text()
    assert f"{entropy:.3f}".rstrip("0") in legend
    assert "No group was dropped." in page.locator("[data-chart=dropped]").inner_text()
    listed = set(
        page.locator("[data-metric]").evaluate_all("list => list.map(one => one.dataset.metric)")
    )
    curves = {f"{c['table']}.{c['name']}" for panel in metrics["panels"] for c in panel["curves"]}
    for table in ("train", "eval"):
        for name in metrics[table]["series"]:
            is_drawn = any(f"{table}.{name}.".startswith(f"{curve}.") for curve in curves)
            is_listed = f"{table}.{name}" in listed
            assert is_drawn != is_listed, f"{table}.{name} is on the page once"
    tokens = page.locator("[data-chart=tokens] .u-legend").inner_text()
    assert "sampled" in tokens and "trained" in tokens
    photograph(page, "job", full_page=True)


def test_chart_legend_under_the_pointer_shows_the_value_of_that_step(
    page: "Page", job: str, world: RouterWorld
) -> None:
    page.goto(f"/jobs/{job}")
    over = page.locator("[data-chart=entropy] .u-over")
    over.wait_for()
    over.hover(position={"x": 2, "y": 20})
    first = world.client.get(f"/v1/jobs/{job}/metrics").json()["train"]["series"]["entropy"][0]
    legend = page.locator("[data-chart=entropy] .u-legend").inner_text()
    assert f"{first:.3f}".rstrip("0") in legend


def test_episodes_tab_filters_by_kind_step_outcome_and_reward(page: "Page", job: str) -> None:
    page.goto(f"/jobs/{job}/episodes")
    count = page.locator("p.count")
    count.wait_for()
    assert count.inner_text() == "34 episodes"
    page.get_by_label("Kind").select_option("train")
    page.locator("p.count", has_text="18 episodes").wait_for()
    page.get_by_role("textbox", name="Step").fill("1")
    page.locator("p.count", has_text="6 episodes").wait_for()
    assert page.url.endswith("?kind=train&step=1")
    page.get_by_label("Outcome").select_option("none")
    page.locator("tbody tr", has_text="not solved").first.wait_for(state="detached")
    page.get_by_role("button", name="Clear").click()
    page.get_by_label("at least").fill("99")
    page.get_by_text("No episode fits").wait_for()


def test_episode_page_shows_the_tree_with_candidates_rewards_and_the_board(
    page: "Page", job: str, world: RouterWorld, photograph: Callable[..., None]
) -> None:
    rows = world.client.get(f"/v1/jobs/{job}/episodes?kind=train&order=oldest").json()["episodes"]
    row = max(rows, key=lambda one: one["num_turns"])
    episode = world.client.get(f"/v1/jobs/{job}/episodes/{row['id']}").json()
    page.goto(f"/jobs/{job}/episodes/{row['id']}")
    cards = page.locator(".draw-card")
    cards.first.wait_for()
    assert cards.count() == row["num_groups"]
    first = cards.first.locator("article")
    assert first.count() == 4
    assert cards.first.locator("article[data-chosen=true]").count() == 1
    groups = [group for turn in episode["turns"] for group in turn["groups"]]
    assert {group["advantages_from"] for group in groups} == {"trainer"}, "the job has ended"
    group = groups[0]
    chosen = next(one for one in group["candidates"] if one["is_chosen"])
    text = cards.first.locator("article[data-chosen=true]").inner_text()
    assert chosen["text"].strip() in text
    assert all(part["term"] in text for part in chosen["reward_parts"])
    assert cards.first.locator(".board .cell").count() == 16
    assert page.locator(".tree circle").count() == row["num_candidates"]
    cards.first.get_by_role("button", name="Prompt").click()
    assert group["prompts"][0][0]["content"] in cards.first.locator(".messages").inner_text()
    photograph(page, "episode", full_page=True)


def test_episode_page_shades_tokens_by_their_probability(
    page: "Page", job: str, world: RouterWorld
) -> None:
    rows = world.client.get(f"/v1/jobs/{job}/episodes?kind=train").json()["episodes"]
    episode = world.client.get(f"/v1/jobs/{job}/episodes/{rows[0]['id']}").json()
    candidate = episode["turns"][0]["groups"][0]["candidates"][0]
    page.goto(f"/jobs/{job}/episodes/{rows[0]['id']}")
    tokens = page.locator(".draw-card").first.locator("article").first.locator(".token")
    tokens.first.wait_for()
    assert tokens.all_text_contents() == candidate["tokens"]["texts"]
    assert "log p" in str(tokens.first.get_attribute("title"))


def test_compare_page_puts_two_steps_of_one_task_side_by_side(
    page: "Page", job: str, photograph: Callable[..., None]
) -> None:
    page.goto(f"/jobs/{job}/episodes/eval-00003-00000")
    page.get_by_label("Compare with").select_option("eval-00000-00000")
    sides = page.locator(".compare-side")
    sides.nth(1).locator(".draw-card").first.wait_for()
    heads = [sides.nth(i).locator("h2").first.inner_text() for i in range(2)]
    assert heads == ["Evaluation, step 0", "Evaluation, step 3"]
    photograph(page, "compare")


def test_policies_tab_shows_version_and_digest(page: "Page", job: str, world: RouterWorld) -> None:
    said = world.client.get(f"/v1/policies?job_id={job}").json()["policies"][0]
    page.goto(f"/jobs/{job}/policies")
    card = page.locator("[data-policy=shared]")
    card.wait_for()
    assert "LoRA, rank 4" in card.inner_text()
    assert said["version"] is None or str(said["version"]) in card.inner_text()


def test_checkpoints_tab_downloads_the_adapter(
    page: "Page", job: str, photograph: Callable[..., None]
) -> None:
    page.goto(f"/jobs/{job}/checkpoints")
    row = page.locator("tr", has_text="exported")
    row.wait_for()
    photograph(page, "checkpoints")
    with page.expect_download() as download:
        row.get_by_role("link", name="Adapter (PEFT)").click()
    path = download.value.path()
    assert path.stat().st_size > 10_000
    assert b"adapter_model.safetensors" in path.read_bytes()


def test_events_logs_and_spec_tabs_show_the_job(page: "Page", job: str) -> None:
    page.goto(f"/jobs/{job}/events")
    page.get_by_text("The job is succeeded.").wait_for()
    page.get_by_text("Steps", exact=True).click()
    page.get_by_text("Step 3 done in").wait_for()
    page.goto(f"/jobs/{job}/logs")
    page.get_by_label("Component").select_option("trainer-0")
    page.locator("pre.log", has_text="service.closed").wait_for()
    page.goto(f"/jobs/{job}/spec")
    assert json.loads(page.locator("pre.code").inner_text())["seed"] == 5


def test_cluster_page_without_a_running_job_says_so(page: "Page", job: str) -> None:
    page.goto("/cluster")
    page.get_by_text("Active jobs", exact=True).wait_for()
    page.get_by_role("heading", name="Replicas").wait_for()
    assert job not in page.locator("main").inner_text()


def test_unknown_job_shows_the_routers_words(page: "Page", world: RouterWorld) -> None:
    page.goto("/jobs/nobody-7")
    alert = page.get_by_role("alert")
    assert "no job 'nobody-7'" in alert.inner_text()
    page.goto("/nowhere/at/all")
    assert page.locator("body").inner_text() != ""
