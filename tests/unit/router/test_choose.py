"""Routing decisions, pure."""

from services.router.routing.choose import RouteCandidate, RouteRequest, choose

REQUEST = RouteRequest("shared", 3, "prompt-a")


def replica(name: str, in_flight: int = 0, *, serving: bool = True, version: int = 3):
    return RouteCandidate(name, serving, in_flight, {"shared": {version}})


def test_choose_when_none_holds_the_version_then_none() -> None:
    assert choose(REQUEST, [replica("a", version=2), replica("b", serving=False)]) is None
    assert choose(REQUEST, []) is None


def test_choose_when_another_policy_has_the_version_then_none() -> None:
    assert choose(REQUEST, [RouteCandidate("a", True, 0, {"other": {3}})]) is None


def test_choose_takes_the_least_busy() -> None:
    assert choose(REQUEST, [replica("a", 5), replica("b", 4), replica("c", 9)]).replica_id == "b"


def test_choose_when_equally_busy_then_equal_prompts_meet_and_others_spread() -> None:
    replicas = [replica(name) for name in "abcd"]
    first = choose(REQUEST, replicas)
    assert choose(REQUEST, list(reversed(replicas))) == first
    chosen = {choose(RouteRequest("shared", 3, f"p{i}"), replicas).replica_id for i in range(64)}
    assert chosen == set("abcd")


def test_choose_avoids_what_failed_but_takes_it_when_it_is_the_only_one() -> None:
    avoiding = RouteRequest("shared", 3, "prompt-a", frozenset({"a"}))
    assert choose(avoiding, [replica("a", 0), replica("b", 50)]).replica_id == "b"
    assert choose(avoiding, [replica("a", 0)]).replica_id == "a"
