"""Routing decisions, pure."""

from hypothesis import given
from hypothesis import strategies as st

from troupe_router.play.routing.choose import (
    LOAD_FACTOR,
    Choice,
    RouteCandidate,
    RouteRequest,
    choose,
    is_held,
    newer_version,
)

REQUEST = RouteRequest("shared", 3, "prompt-a")


def replica(
    name: str,
    in_flight: int = 0,
    matched: float = 0.0,
    *,
    serving: bool = True,
    version: int = 3,
    suspect: bool = False,
    limit: int = 1000,
):
    versions = {"shared": {version}}
    return RouteCandidate(
        name, serving, in_flight, versions, matched, is_suspect=suspect, limit=limit
    )


def chosen(request: RouteRequest, *candidates: RouteCandidate) -> tuple[str, str]:
    found = choose(request, candidates)
    assert found is not None
    return found.replica.replica_id, found.affinity


def test_choose_when_none_holds_the_version_then_none() -> None:
    absent = [replica("a", version=2), replica("b", serving=False)]
    assert choose(REQUEST, absent) is None
    assert not is_held(REQUEST, absent)
    assert choose(REQUEST, []) is None


def test_choose_when_another_policy_has_the_version_then_none() -> None:
    assert choose(REQUEST, [RouteCandidate("a", True, 0, {"other": {3}})]) is None


def test_choose_when_nobody_knows_the_prompt_then_the_least_busy() -> None:
    assert chosen(REQUEST, replica("a", 5), replica("b", 4), replica("c", 9)) == ("b", "miss")


def test_choose_when_equally_busy_then_equal_prompts_meet_and_others_spread() -> None:
    replicas = [replica(name) for name in "abcd"]
    first = choose(REQUEST, replicas)
    assert choose(REQUEST, list(reversed(replicas))) == first
    found = {chosen(RouteRequest("shared", 3, f"p{i}"), *replicas)[0] for i in range(64)}
    assert found == set("abcd")


def test_choose_when_a_replica_knows_the_prompt_then_that_one_though_it_is_busier() -> None:
    # In flight 4 + 3 and one more: mean 4, bound 6; "a" would have 5.
    assert chosen(REQUEST, replica("a", 4, 0.5), replica("b", 3)) == ("a", "hit")


def test_choose_when_that_replica_is_loaded_then_spills_to_the_next_that_knows_most() -> None:
    # In flight 9 + 2 + 1 and one more: mean 13/3, bound 6.5; "a" would have 10, "b" 3.
    known = [replica("a", 9, 0.9), replica("b", 2, 0.4), replica("c", 1)]
    assert chosen(REQUEST, *known) == ("b", "spill")


def test_choose_counts_a_request_by_its_candidates() -> None:
    # In flight 8 and 0: eight more make 16 on "a" where the bound is 1.5 * 16 / 2 = 12.
    eight = RouteRequest("shared", 3, "prompt-a", weight=8)
    assert chosen(eight, replica("a", 8, 1.0), replica("b", 0)) == ("b", "spill")
    # 16 and 16: 24 is below 1.5 * 40 / 2 = 30, and "a" is as idle as any.
    assert chosen(eight, replica("a", 16, 1.0), replica("b", 16)) == ("a", "hit")


def test_choose_when_all_know_the_same_then_it_is_no_reason_to_prefer_one() -> None:
    rules_only = [replica("a", 2, 0.4), replica("b", 1, 0.4)]
    assert chosen(REQUEST, *rules_only) == ("b", "miss")
    everything = [replica("a", 2, 1.0), replica("b", 1, 1.0)]
    assert chosen(REQUEST, *everything) == ("b", "hit")


def test_choose_avoids_what_failed_but_takes_it_when_it_is_the_only_one() -> None:
    avoiding = RouteRequest("shared", 3, "prompt-a", frozenset({"a"}))
    assert chosen(avoiding, replica("a", 0, 1.0), replica("b", 50))[0] == "b"
    assert chosen(avoiding, replica("a", 0))[0] == "a"


def test_choose_when_a_replica_is_suspect_then_never_before_another() -> None:
    assert chosen(REQUEST, replica("a", 0, 1.0, suspect=True), replica("b", 50))[0] == "b"
    both = [replica("a", suspect=True), replica("b", suspect=True)]
    assert choose(REQUEST, both) is not None
    avoiding = RouteRequest("shared", 3, "prompt-a", frozenset({"b"}))
    assert chosen(avoiding, replica("a", 9, suspect=True), replica("b"))[0] == "a"


def test_choose_when_those_that_hold_it_are_full_then_none_but_held() -> None:
    two = RouteRequest("shared", 3, "prompt-a", weight=2)
    full = [replica("a", 7, limit=8), replica("b", version=2)]
    assert choose(two, full) is None
    assert is_held(two, full)
    assert chosen(two, replica("a", 6, limit=8))[0] == "a"


def test_choose_when_a_request_exceeds_the_limit_then_an_idle_replica_takes_it() -> None:
    many = RouteRequest("shared", 3, "prompt-a", weight=64)
    assert chosen(many, replica("a", 0, limit=8), replica("b", 1, limit=8))[0] == "a"


def test_newer_version_is_the_newest_that_a_serving_replica_holds() -> None:
    held = [
        replica("a", version=4),
        replica("b", version=5),
        replica("c", version=9, serving=False),
    ]
    assert newer_version(REQUEST, held) == 5
    assert newer_version(REQUEST, [replica("a", version=2), replica("b", version=3)]) is None
    assert newer_version(RouteRequest("other", 1, ""), held) is None


fleets = st.lists(
    st.tuples(
        st.integers(0, 40), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.booleans(), st.booleans()
    ),
    min_size=1,
    max_size=8,
).map(
    lambda found: [
        replica(f"r{i}", load, matched, suspect=suspect, version=3 if holds else 2, limit=32)
        for i, (load, matched, suspect, holds) in enumerate(found)
    ]
)
requests = st.builds(
    RouteRequest,
    st.just("shared"),
    st.just(3),
    st.text(max_size=4),
    st.frozensets(st.sampled_from(["r0", "r1", "r2"])),
    st.integers(1, 16),
)


@given(requests, fleets)
def test_choice_holds_the_version_has_room_and_keeps_the_load_bound(
    request: RouteRequest, fleet: list[RouteCandidate]
) -> None:
    found = choose(request, fleet)
    able = [c for c in fleet if c.holds("shared", 3)]
    if found is None:
        assert not any(
            c.has_room(request.weight) and c.replica_id not in request.avoid and not c.is_suspect
            for c in able
        )
        return
    replica_ = found.replica
    assert replica_ in able
    assert replica_.has_room(request.weight)
    peers = [
        c
        for c in able
        if c.has_room(request.weight)
        and c.is_suspect == replica_.is_suspect
        and (c.replica_id in request.avoid) == (replica_.replica_id in request.avoid)
    ]
    if not replica_.is_suspect and replica_.replica_id not in request.avoid:
        total = sum(c.num_in_flight for c in peers) + request.weight
        is_least = replica_.num_in_flight == min(c.num_in_flight for c in peers)
        after = replica_.num_in_flight + request.weight
        assert is_least or after <= LOAD_FACTOR * total / len(peers)


@given(requests, fleets, st.randoms())
def test_choice_does_not_depend_on_the_order_of_replicas(request, fleet, random) -> None:
    shuffled = list(fleet)
    random.shuffle(shuffled)
    assert choose(request, shuffled) == choose(request, fleet)


@given(st.text(max_size=8), st.integers(2, 8), st.integers(0, 7))
def test_choice_when_another_idle_replica_leaves_then_stays(affinity, count, gone) -> None:
    request = RouteRequest("shared", 3, affinity)
    fleet = [replica(f"r{i}") for i in range(count)]
    first = choose(request, fleet)
    assert isinstance(first, Choice)
    left = [c for c in fleet if c.replica_id != f"r{gone}"]
    if first.replica in left:
        assert choose(request, left) == first


@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.sampled_from([0.0, 0.25, 0.5, 1.0])),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 4),
    st.text(max_size=3),
)
def test_choose_when_looking_at_all_in_order_then_the_same_replica(
    states: list[tuple[int, float]], weight: int, affinity: str
) -> None:
    request = RouteRequest("shared", 3, affinity, weight=weight)
    pool = [replica(f"r{i}", load, matched) for i, (load, matched) in enumerate(states)]
    found = choose(request, pool)
    assert found is not None

    # A replica alone is the nearest of those that are equal to it.
    def place(one: RouteCandidate) -> int:
        equal = [replica(c.replica_id) for c in pool]
        order: list[str] = []
        while equal:
            nearest = choose(RouteRequest("shared", 3, affinity), equal)
            assert nearest is not None
            order.append(nearest.replica.replica_id)
            equal.remove(nearest.replica)
        return order.index(one.replica_id)

    loads = [c.num_in_flight for c in pool]
    bound = LOAD_FACTOR * (sum(loads) + weight) / len(pool)
    if len({c.matched for c in pool}) > 1 or (len(pool) == 1 and pool[0].matched > 0):
        ranked = sorted(pool, key=lambda c: (-c.matched, place(c)))
        wanted = next(
            c for c in ranked if c.num_in_flight + weight <= bound or c.num_in_flight == min(loads)
        )
    else:
        wanted = min(pool, key=lambda c: (c.num_in_flight, place(c)))
    assert found.replica == wanted
