"""Processes that play beside the router: none by default, and confined as every other pod."""

from pathlib import Path

from chart_world import ROOT, Manifests, Render, selects

from troupe.runtime.tls.roles import ROLES

TWO = "play.replicas=2"


def _players(manifests: Manifests) -> str:
    spec = manifests.one("Deployment", "t-troupe-router")["spec"]["template"]["spec"]
    [variable] = [v for v in spec["containers"][0]["env"] if v["name"] == "TROUPE_ROUTER_PLAYERS"]
    return variable["value"]


def test_play_when_it_has_no_replicas_then_the_router_plays_and_nothing_of_it_is_there(
    render: Render,
) -> None:
    manifests = render()
    assert _players(manifests) == "inside"
    assert [o for o in manifests if o["metadata"]["name"].endswith("-play")] == []


def test_play_when_it_has_replicas_then_plays_with_the_routers_image_and_the_router_does_not(
    render: Render,
) -> None:
    manifests = render([], TWO)
    assert _players(manifests) == "outside"
    of = {
        name: manifests.one("Deployment", f"t-troupe-{name}")["spec"] for name in ("router", "play")
    }
    play = of["play"]["template"]["spec"]
    [container], [router] = play["containers"], of["router"]["template"]["spec"]["containers"]
    assert of["play"]["replicas"] == 2
    assert container["image"] == router["image"]
    assert (ROOT / "services" / "router" / Path(*container["args"][0].split("."))).is_dir()
    assert container["securityContext"] == router["securityContext"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe] == router[probe]
    assert play["securityContext"] == of["router"]["template"]["spec"]["securityContext"]
    assert play["automountServiceAccountToken"] is False
    assert [v["name"] for v in play["volumes"]] == ["tmp", "tls"]
    assert play["terminationGracePeriodSeconds"] > 30


def test_play_when_it_has_replicas_then_has_budget_account_certificate_and_monitor(
    render: Render,
) -> None:
    manifests = render([], TWO, "monitoring.podMonitor.enabled=true")
    [labels] = [x for name, x, _ in manifests.pods() if name == "t-troupe-play"]
    budget = manifests.one("PodDisruptionBudget", "t-troupe-play")["spec"]["selector"]
    [monitor] = manifests.of("PodMonitor")
    assert selects(budget, labels) and selects(monitor["spec"]["selector"], labels)
    account = manifests.one("ServiceAccount", "t-troupe-play")
    assert account["automountServiceAccountToken"] is False
    secrets = {o["metadata"]["name"] for o in manifests.of("Secret")}
    assert {f"t-troupe-tls-{role}" for role in ROLES} <= secrets
    rules = manifests.one("NetworkPolicy", "t-troupe-play")["spec"]["ingress"]
    assert [rule["ports"][0]["port"] for rule in rules] == [9090]
