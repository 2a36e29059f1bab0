"""tau2-bench's airline: the tools on a hand-written database, the reader, and the check."""

import json
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest

from troupe.data.dataset import RefusedRowError
from troupe.errors import InvalidArgumentError
from troupe_tasks.datasets import tau2
from troupe_tasks.tools import Tools, ToolsParams
from troupe_tasks.tools.dialect import Call, problem_of, written
from troupe_tasks.tools.tau2_airline import AIRLINE
from troupe_tasks.tools.tau2_domain import RefusedCallError, Store

ADA = {"first_name": "Ada", "last_name": "Dorn", "dob": "1990-01-02"}
FIRST = {"flight_number": "HAT1", "date": "2024-05-20"}
SECOND = {"flight_number": "HAT2", "date": "2024-05-21"}
FULL = {"flight_number": "HAT3", "date": "2024-05-20"}


def _flight(number: str, origin: str, destination: str, times: str, seats: int) -> dict[str, Any]:
    cabins = ("basic_economy", "economy", "business")
    day = {
        "status": "available",
        "available_seats": dict.fromkeys(cabins, seats),
        "prices": dict(zip(cabins, (50, 100, 300), strict=True)),
    }
    leaves, arrives = times.split()
    return {
        "flight_number": number,
        "origin": origin,
        "destination": destination,
        "scheduled_departure_time_est": leaves,
        "scheduled_arrival_time_est": arrives,
        "dates": {
            "2024-05-14": {"status": "landed"},
            "2024-05-20": day,
            "2024-05-21": deepcopy(day),
        },
    }


def _db() -> dict[str, Any]:
    flights = [
        _flight("HAT1", "SFO", "DEN", "10:00:00 12:00:00", 4),
        _flight("HAT2", "DEN", "JFK", "13:00:00 18:00:00", 4),
        _flight("HAT3", "DEN", "JFK", "11:00:00 16:00:00", 0),
    ]
    methods = {
        "gift_card_1": {"source": "gift_card", "id": "gift_card_1", "amount": 250.0},
        "certificate_1": {"source": "certificate", "id": "certificate_1", "amount": 150.0},
        "credit_card_1": {"source": "credit_card", "id": "credit_card_1", "brand": "visa"},
    }
    booking = {
        "reservation_id": "AAA111",
        "user_id": "ada",
        "origin": "SFO",
        "destination": "DEN",
        "flight_type": "one_way",
        "cabin": "economy",
        "flights": [{"origin": "SFO", "destination": "DEN", **FIRST, "price": 80}],
        "passengers": [ADA],
        "payment_history": [{"payment_id": "gift_card_1", "amount": 80}],
        "created_at": "2024-05-01T00:00:00",
        "total_baggages": 1,
        "nonfree_baggages": 0,
        "insurance": "no",
    }
    user = {"user_id": "ada", "payment_methods": methods, "reservations": ["AAA111"]}
    return {
        "flights": {flight["flight_number"]: flight for flight in flights},
        "users": {"ada": user},
        "reservations": {"AAA111": booking},
    }


BOOK: dict[str, Any] = {
    "user_id": "ada",
    "origin": "SFO",
    "destination": "JFK",
    "flight_type": "one_way",
    "cabin": "economy",
    "flights": [FIRST, SECOND],
    "passengers": [ADA],
    "payment_methods": [
        {"payment_id": "certificate_1", "amount": 100},
        {"payment_id": "gift_card_1", "amount": 180},
    ],
    "total_baggages": 2,
    "nonfree_baggages": 1,
    "insurance": "yes",
}
CHANGE: dict[str, Any] = {
    "reservation_id": "AAA111",
    "cabin": "economy",
    "flights": [FIRST, SECOND],
    "payment_id": "gift_card_1",
}


def _do(name: str, **arguments: Any) -> dict[str, Any]:
    call, store = Call(name, arguments), Store(_db())
    assert problem_of(next(tool for tool in AIRLINE.tools if tool.name == name), call) == ""
    AIRLINE.done(store, call)
    return store.differences()


def test_booking_when_paid_in_parts_then_takes_seats_money_and_the_certificate() -> None:
    changed = _do("book_reservation", **BOOK)
    assert changed.keys() == {"reservations/HATHAT", "users/ada", "flights/HAT1", "flights/HAT2"}
    methods = changed["users/ada"]["payment_methods"]
    assert "certificate_1" not in methods
    assert methods["gift_card_1"]["amount"] == 70.0
    assert changed["users/ada"]["reservations"] == ["AAA111", "HATHAT"]
    assert changed["flights/HAT1"]["dates"]["2024-05-20"]["available_seats"]["economy"] == 3
    assert [f["price"] for f in changed["reservations/HATHAT"]["flights"]] == [100, 100]


def test_cancelled_booking_then_refunds_each_payment_and_keeps_seats() -> None:
    changed = _do("cancel_reservation", reservation_id="AAA111")
    assert changed.keys() == {"reservations/AAA111"}
    after = changed["reservations/AAA111"]
    assert (after["status"], after["payment_history"][-1]["amount"]) == ("cancelled", -80)


def test_changed_flights_then_keep_the_old_price_of_those_that_stay() -> None:
    after = _do("update_reservation_flights", **CHANGE)
    assert after["users/ada"]["payment_methods"]["gift_card_1"]["amount"] == 150.0
    booking = after["reservations/AAA111"]
    assert [flight["price"] for flight in booking["flights"]] == [80, 100]
    assert booking["payment_history"][-1] == {"payment_id": "gift_card_1", "amount": 100}
    cheaper = _do("update_reservation_flights", **{**CHANGE, "flights": [FIRST],
                                                   "cabin": "basic_economy"})  # fmt: skip
    assert cheaper["reservations/AAA111"]["payment_history"][-1]["amount"] == -30


def test_bags_passengers_and_certificates_then_change_their_record_alone() -> None:
    bags = {"reservation_id": "AAA111", "total_baggages": 3, "nonfree_baggages": 2}
    after = _do("update_reservation_baggages", **bags, payment_id="credit_card_1")
    assert after.keys() == {"reservations/AAA111"}
    assert after["reservations/AAA111"]["payment_history"][-1]["amount"] == 100
    names = [{**ADA, "first_name": "Ida", "seat": "9"}]
    after = _do("update_reservation_passengers", reservation_id="AAA111", passengers=names)
    assert after["reservations/AAA111"]["passengers"] == [{**ADA, "first_name": "Ida"}]
    after = _do("send_certificate", user_id="ada", amount=50)
    assert after["users/ada"]["payment_methods"]["certificate_3221322"]["amount"] == 50


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("book_reservation", {**BOOK, "nonfree_baggages": 2}),
        ("book_reservation", {**BOOK, "flights": [FIRST, FULL]}),
        ("book_reservation", {**BOOK, "flights": [{**FIRST, "date": "2024-05-14"}]}),
        ("book_reservation", {**BOOK, "flights": [{**FIRST, "date": "2030-01-01"}]}),
        ("book_reservation", {**BOOK, "cabin": "roof"}),
        ("book_reservation", {**BOOK, "insurance": "maybe"}),
        ("book_reservation", {**BOOK, "passengers": [{"first_name": "Ada"}]}),
        ("book_reservation", {**BOOK, "payment_methods": [{"payment_id": "x", "amount": 280}]}),
        (
            "book_reservation",
            {**BOOK, "payment_methods": [{"payment_id": "certificate_1", "amount": 140}] * 2},
        ),
        ("book_reservation", {**BOOK, "payment_methods": [{"payment_id": "gift_card_1"}]}),
        (
            "book_reservation",
            {**BOOK, "payment_methods": [{"payment_id": "gift_card_1", "amount": float("inf")}]},
        ),
        ("update_reservation_flights", {**CHANGE, "payment_id": "certificate_1"}),
        ("update_reservation_flights", {**CHANGE, "cabin": "business"}),
        ("update_reservation_flights", {**CHANGE, "flights": [FULL]}),
        ("update_reservation_flights", {**CHANGE, "cabin": "roof", "flights": []}),
        ("update_reservation_passengers", {"reservation_id": "AAA111", "passengers": []}),
        ("cancel_reservation", {"reservation_id": "ZZZ999"}),
        ("send_certificate", {"user_id": "nobody", "amount": 1}),
        ("get_flight_status", {"flight_number": "HAT1", "date": "2030-01-01"}),
    ],
)
def test_call_that_is_refused_then_changes_nothing(name: str, arguments: dict[str, Any]) -> None:
    store = Store(_db())
    with pytest.raises(RefusedCallError):
        AIRLINE.done(store, Call(name, arguments))
    assert store.differences() == {}


def test_searches_then_find_direct_and_connecting_flights_that_can_be_booked() -> None:
    def ask(name: str, **asked: str) -> Any:
        return AIRLINE.done(Store(_db()), Call(name, asked))

    trip = {"origin": "DEN", "destination": "JFK", "date": "2024-05-20"}
    assert [f["flight_number"] for f in ask("search_direct_flight", **trip)] == ["HAT2", "HAT3"]
    assert ask("search_direct_flight", **{**trip, "date": "2024-05-14"}) == []
    pairs = ask("search_onestop_flight", **{**trip, "origin": "SFO"})
    assert [[f["flight_number"] for f in pair] for pair in pairs] == [["HAT1", "HAT2"]]
    assert ask("get_flight_status", flight_number="HAT1", date="2024-05-14") == "landed"
    assert ask("list_all_airports")["SFO"] == "San Francisco"


def _row(**changes: Any) -> dict[str, Any]:
    action = {"name": "cancel_reservation", "arguments": {"reservation_id": "AAA111"}}
    criteria = {
        "actions": [action],
        "communicate_info": [],
        "nl_assertions": ["Agent cancels AAA111."],
        "reward_basis": ["DB", "COMMUNICATE"],
    }
    scenario = {"domain": "airline", "reason_for_call": "Cancel AAA111."}
    return {
        "id": "3",
        "user_scenario": {"instructions": scenario},
        "initial_state": None,
        "evaluation_criteria": {**criteria, **changes},
    }


def test_row_when_its_basis_counts_no_assertion_then_the_database_decides() -> None:
    assert tau2.convert(_row())["id"] == "tau2/airline/3"
    with pytest.raises(RefusedRowError, match="judges_what_is_said"):
        tau2.convert(_row(communicate_info=["327"]))
    reading = {"name": "get_user_details", "arguments": {"user_id": "ada"}}
    with pytest.raises(RefusedRowError, match="database_stays_unchanged"):
        tau2.convert(_row(actions=[reading]))


def _family(folder: Path, row: dict[str, Any]) -> Tools:
    (folder / "db.json").write_text(json.dumps(_db()), "utf-8")
    (folder / "test.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    files = {"data": folder / "test.jsonl", "db": folder / "db.json"}
    return Tools(ToolsParams.model_validate({"tau2": files}))


def test_ticket_of_the_airline_when_played_then_pays_for_the_right_database(tmp_path: Path) -> None:
    family = _family(tmp_path, tau2.convert(_row()))
    env = family.environment()
    begun = env.reset(family.taskset().task("test", 0))
    assert "customer of an airline" in env.observe(begun, "operator")[0].content
    state = env.step(begun, "operator", family.demonstrate(begun, "operator", Random(0))).state
    ended = env.step(state, "operator", family.demonstrate(state, "operator", Random(0)))
    assert (ended.team_reward, ended.success) == (1.0, True)
    assert not env.step(begun, "operator", written(Call("finish", {}))).success
    for seed in range(40):
        env.step(begun, "operator", family.random_action(begun, "operator", Random(seed)))


def test_call_when_it_is_nested_deeper_than_a_state_can_be_then_is_none(tmp_path: Path) -> None:
    env = (family := _family(tmp_path, tau2.convert(_row()))).environment()
    begun = env.reset(family.taskset().task("test", 0))
    deep = f'{{"x": {"[" * 500}{"]" * 500}}}'
    changes = (
        f'{{"reservation_id": "AAA111", "passengers": [{json.dumps(ADA)[:-1]}, "x": {deep}}}]}}'
    )
    name = "update_reservation_passengers"
    call = f'<tool_call>{{"name": "{name}", "arguments": {changes}}}</tool_call>'
    done = env.step(begun, "operator", call)
    assert (done.local_rewards["format"], done.info["writes"]) == (-1.0, [])


def test_ticket_of_another_domain_then_is_refused_by_name(tmp_path: Path) -> None:
    row = tau2.convert(_row())
    family = _family(tmp_path, {**row, "id": "tau2/retail/3"})
    with pytest.raises(InvalidArgumentError, match="no ticket of the airline database"):
        family.environment().reset(family.taskset().task("test", 0))
