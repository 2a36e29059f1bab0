"""The airline: customers, bookings and flights, three kinds of requests, and its rules."""

from collections.abc import Mapping
from random import Random
from typing import Any

from troupe_tasks.tools.case import (
    NOT_VERIFIED,
    NOT_YOURS,
    Case,
    Database,
    Domain,
    copied,
    owner_is_proven,
)
from troupe_tasks.tools.dialect import Call, Tool
from troupe_tasks.tools.people import drawn_customers, drawn_id

CITIES = ["Oslo", "Turin", "Porto", "Gdansk", "Lyon", "Malmo", "Cork", "Graz"]
REASONS = ("illness", "weather", "plans_changed", "work")
INSURED_REASONS = ("illness", "weather")

READ_TOOLS = (
    Tool("list_bookings", "Booking ids of a customer, with flights.", {"customer": "string"}),
    Tool("get_booking", "Show one booking.", {"booking": "string"}),
    Tool("get_flight", "Show a flight: route, day, free seats.", {"flight": "string"}),
)
WRITE_TOOLS = (
    Tool(
        "cancel_booking",
        "Cancel a booking and refund it.",
        {"booking": "string", "reason": "string"},
    ),
    Tool(
        "change_flight",
        "Move a booking to another flight.",
        {"booking": "string", "flight": "string"},
    ),
    Tool("set_bags", "Set the number of checked bags.", {"booking": "string", "bags": "integer"}),
)
OPENINGS = {
    "cancel_booking": "I want to cancel my trip and get my money back.",
    "change_flight": "I need another flight.",
    "set_bags": "I want to take more bags along.",
}
TOPICS = {
    "email": "the customer's email address",
    "zip": "the customer's zip code",
    "booking": "which booking it is about",
    "flight": "which flight is wanted instead",
    "reason": "why the trip is to be cancelled",
    "bags": "how many bags there should be in all",
}
RULES = (
    NOT_VERIFIED,
    NOT_YOURS,
    "departed",
    "basic_fare",
    "other_route",
    "no_seats",
    "too_many_bags",
)


def draw(rng: Random) -> Case:
    """One case; about half of the requests break a rule."""
    db = _drawn_db(rng)
    policy = {
        "basic_hours": rng.choice((6, 12, 24, 48)),
        "basic_bags": rng.choice((1, 2)),
        "flex_bags": rng.choice((3, 4)),
    }
    kind = rng.choice(list(OPENINGS))
    key = rng.choice(list(db["bookings"]))
    booking = db["bookings"][key]
    _steered(rng, db, booking, kind, policy)
    arguments = _arguments(rng, db, key, kind, policy)
    customer = booking["customer"]
    facts = {name: db["customers"][customer][name] for name in ("email", "zip")}
    trick = rng.random()
    if trick < 0.08:
        facts["zip"] = str(rng.randint(10_000, 99_999))
    elif trick < 0.18:
        customer = rng.choice([c for c in db["customers"] if c != customer])
        facts = {name: db["customers"][customer][name] for name in ("email", "zip")}
    facts |= {name: str(value) for name, value in arguments.items()}
    if trick > 0.7 and _has_unique(db, booking):
        facts["booking"] = (
            f"I do not know the number. It is the booking on flight {booking['flight']}."
        )
    lookups = [
        Call("get_booking", {"booking": key}),
        Call("get_flight", {"flight": booking["flight"]}),
    ]
    if kind == "change_flight":
        lookups.append(Call("get_flight", {"flight": arguments["flight"]}))
    name = db["customers"][customer]["name"]
    opening = f"Hello, this is {name}. {OPENINGS[kind]}"
    return Case(
        "airline", db, policy, name, customer, opening, facts, Call(kind, arguments), tuple(lookups)
    )


def broken(case: Case) -> frozenset[str]:
    """The rules that the request of ``case`` breaks."""
    if not owner_is_proven(case):
        return frozenset((NOT_VERIFIED,))
    asked, db, policy = case.request.arguments, case.db, case.policy
    booking = db["bookings"][asked["booking"]]
    flight = db["flights"][booking["flight"]]
    rules = {NOT_YOURS} if booking["customer"] != case.customer else set[str]()
    if flight["day"] < db["today"]:
        rules.add("departed")
    is_basic = booking["fare"] == "basic"
    if case.request.name == "cancel_booking" and is_basic:
        is_new = booking["hours_since_booking"] <= policy["basic_hours"]
        is_insured = booking["insured"] and asked["reason"] in INSURED_REASONS
        rules |= set[str]() if is_new or is_insured else {"basic_fare"}
    if case.request.name == "change_flight":
        new = db["flights"][asked["flight"]]
        rules |= {"basic_fare"} if is_basic else set[str]()
        rules |= {"other_route"} if new["route"] != flight["route"] else set[str]()
        rules |= {"no_seats"} if new["seats"] < 1 else set[str]()
    if case.request.name == "set_bags":
        most = policy["basic_bags"] if is_basic else policy["flex_bags"]
        rules |= {"too_many_bags"} if asked["bags"] > most else set[str]()
    return frozenset(rules)


def policy_lines(policy: Mapping[str, Any]) -> list[str]:
    """The airline's rules with their codes, for the clerk."""
    hours, insured = policy["basic_hours"], " or ".join(INSURED_REASONS)
    return [
        f"{NOT_VERIFIED}: the customer's email and zip code do not fit together.",
        f"{NOT_YOURS}: the booking belongs to another customer.",
        "departed: nothing changes once the flight's day is before today.",
        f"basic_fare: a basic fare is never moved to another flight, and is cancelled only "
        f"within {hours} hours of booking, or with insurance for the reasons {insured}.",
        "other_route: a booking moves only to a flight of the same route.",
        "no_seats: a booking does not move to a flight without free seats.",
        f"too_many_bags: at most {policy['basic_bags']} bags on a basic fare, "
        f"{policy['flex_bags']} on a flex fare.",
    ]


def read(db: Database, call: Call) -> dict[str, Any] | str:
    """What a reading tool shows, or why it shows nothing."""
    asked = call.arguments
    if call.name == "list_bookings":
        if asked["customer"] not in db["customers"]:
            return "there is no such customer"
        mine = {k: b for k, b in db["bookings"].items() if b["customer"] == asked["customer"]}
        return {"bookings": {key: booking["flight"] for key, booking in mine.items()}}
    table, name = ("bookings", "booking") if call.name == "get_booking" else ("flights", "flight")
    record = db[table].get(asked[name])
    if record is None:
        return f"there is no such {name}"
    return {name: asked[name], **record, "today": db["today"]}


def write(db: Database, call: Call) -> Database | str:
    """The changed database, or why nothing changed. The tool does not know the policy."""
    asked, after = call.arguments, copied(db)
    booking = after["bookings"].get(asked["booking"])
    if booking is None:
        return "there is no such booking"
    if call.name == "cancel_booking":
        booking["status"], booking["reason"] = "cancelled", asked["reason"]
        after["flights"][booking["flight"]]["seats"] += 1
    elif call.name == "set_bags":
        booking["bags"] = asked["bags"]
    elif asked["flight"] not in after["flights"]:
        return "there is no such flight"
    else:
        after["flights"][booking["flight"]]["seats"] += 1
        after["flights"][asked["flight"]]["seats"] -= 1
        booking["flight"] = asked["flight"]
    return after


def _drawn_db(rng: Random) -> Database:
    customers = drawn_customers(rng, 4)
    today, flights, bookings = rng.randint(100, 300), dict[str, Any](), dict[str, Any]()
    for _ in range(3):
        route = "-".join(rng.sample(CITIES, 2))
        for _ in range(2):
            day = today + rng.randint(0, 20)
            flights[drawn_id(rng, "F", flights)] = {
                "route": route,
                "day": day,
                "seats": rng.randint(1, 9),
            }
    for customer in [*customers, *rng.sample(list(customers), 2)]:
        bookings[drawn_id(rng, "B", bookings)] = {
            "customer": customer,
            "flight": rng.choice(list(flights)),
            "fare": rng.choice(("basic", "flex")),
            "hours_since_booking": rng.randint(1, 400),
            "insured": rng.random() < 0.4,
            "bags": rng.randint(0, 1),
            "status": "booked",
        }
    return {"today": today, "customers": customers, "bookings": bookings, "flights": flights}


def _steered(
    rng: Random, db: Database, booking: dict[str, Any], kind: str, policy: Mapping[str, Any]
) -> None:
    """Make most requests allowed, and most of the others break just one rule."""
    if rng.random() < 0.1:
        db["flights"][booking["flight"]]["day"] = db["today"] - rng.randint(1, 5)
    if kind == "change_flight":
        booking["fare"] = "flex" if rng.random() < 0.8 else "basic"
    if kind == "cancel_booking" and rng.random() < 0.4:
        booking["hours_since_booking"] = rng.randint(1, policy["basic_hours"])


def _arguments(
    rng: Random, db: Database, key: str, kind: str, policy: Mapping[str, Any]
) -> dict[str, Any]:
    booking = db["bookings"][key]
    if kind == "cancel_booking":
        return {"booking": key, "reason": rng.choice(REASONS)}
    if kind == "set_bags":
        most = policy["basic_bags" if booking["fare"] == "basic" else "flex_bags"]
        least = booking["bags"] + 1
        allowed = list(range(least, most + 1))
        too_many = [most + 1, most + 2]
        return {
            "booking": key,
            "bags": rng.choice(allowed if allowed and rng.random() < 0.7 else too_many),
        }
    flights = db["flights"]
    route = flights[booking["flight"]]["route"]
    same = [k for k in flights if flights[k]["route"] == route and k != booking["flight"]]
    other = [k for k in flights if flights[k]["route"] != route]
    new = rng.choice(same if same and rng.random() < 0.8 else other)
    if rng.random() < 0.15:
        flights[new]["seats"] = 0
    return {"booking": key, "flight": new}


def _has_unique(db: Database, booking: Mapping[str, Any]) -> bool:
    """Whether the customer of ``booking`` has one booking alone on its flight."""
    same = (
        b["customer"] == booking["customer"] and b["flight"] == booking["flight"]
        for b in db["bookings"].values()
    )
    return sum(same) == 1


AIRLINE = Domain(
    "airline",
    "an airline",
    TOPICS,
    READ_TOOLS,
    WRITE_TOOLS,
    RULES,
    draw,
    policy_lines,
    read,
    write,
    broken,
)
