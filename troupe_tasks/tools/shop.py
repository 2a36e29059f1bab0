"""The shop: customers, orders and stock, four kinds of requests, and the shop's rules."""

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
from troupe_tasks.tools.people import drawn_address, drawn_customers, drawn_id

PRODUCTS = ["lamp", "kettle", "chair", "clock", "jacket", "backpack", "speaker", "blanket"]
COLOURS = ["red", "blue", "green", "black", "white"]
REASONS = ("mistake", "too_slow", "price", "moved")
CARDS = ("card_1", "card_2", "bank")
CREDIT = "store_credit"

READ_TOOLS = (
    Tool("list_orders", "Order ids of a customer, with products.", {"customer": "string"}),
    Tool("get_order", "Show one order.", {"order": "string"}),
    Tool("get_product", "Show an article: product, price, stock.", {"article": "string"}),
)
WRITE_TOOLS = (
    Tool("cancel_order", "Cancel an order.", {"order": "string", "reason": "string"}),
    Tool(
        "return_item",
        "Take an article of an order back and refund it.",
        {"order": "string", "article": "string", "refund_to": "string"},
    ),
    Tool(
        "exchange_item",
        "Exchange an article of an order for another one.",
        {"order": "string", "article": "string", "new_article": "string"},
    ),
    Tool("change_address", "Send an order elsewhere.", {"order": "string", "address": "string"}),
)
OPENINGS = {
    "cancel_order": "I want to cancel an order.",
    "return_item": "I want to send something back and get my money.",
    "exchange_item": "I want to exchange something that I bought.",
    "change_address": "My parcel should go to another address.",
}
TOPICS = {
    "email": "the customer's email address",
    "zip": "the customer's zip code",
    "order": "which order it is about",
    "article": "which article it is about",
    "new_article": "which article is wanted instead",
    "refund_to": "where the money should go",
    "reason": "why the order is to be cancelled",
    "address": "the new address",
}
RULES = (
    NOT_VERIFIED,
    NOT_YOURS,
    "not_pending",
    "reason_not_accepted",
    "not_delivered",
    "too_late",
    "final_sale",
    "other_payment",
    "other_product",
    "out_of_stock",
)


def draw(rng: Random) -> Case:
    """One case; about half of the requests break a rule."""
    db = _drawn_db(rng)
    policy = {
        "return_days": rng.choice((10, 14, 21, 30, 45)),
        "cancel_reasons": sorted(rng.sample(REASONS, 2)),
    }
    kind = rng.choice(list(OPENINGS))
    order_id = rng.choice(list(db["orders"]))
    order = db["orders"][order_id]
    article = rng.choice(list(order["items"]))
    _steered(rng, db, order, article, kind, policy)
    customer = order["customer"]
    arguments = _arguments(rng, db, order_id, article, kind, policy)
    caller = customer
    facts = {name: db["customers"][customer][name] for name in ("email", "zip")}
    trick = rng.random()
    if trick < 0.08:
        facts["zip"] = str(rng.randint(10_000, 99_999))
    elif trick < 0.18:
        caller = customer = rng.choice([c for c in db["customers"] if c != customer])
        facts = {name: db["customers"][caller][name] for name in ("email", "zip")}
    forgets = customer == order["customer"] and trick > 0.7
    facts |= {name: str(value) for name, value in arguments.items()}
    if forgets and _has_unique(db, customer, article):
        facts["order"] = f"I do not know the number. It is the order with article {article}."
        facts["article"] = article
    lookups = [Call("get_order", {"order": order_id})]
    if kind == "exchange_item":
        lookups.append(Call("get_product", {"article": arguments["new_article"]}))
    name = db["customers"][caller]["name"]
    opening = f"Hello, this is {name}. {OPENINGS[kind]}"
    return Case(
        "shop", db, policy, name, customer, opening, facts, Call(kind, arguments), tuple(lookups)
    )


def broken(case: Case) -> frozenset[str]:
    """The rules that the request of ``case`` breaks."""
    if not owner_is_proven(case):
        return frozenset((NOT_VERIFIED,))
    asked, db, policy = case.request.arguments, case.db, case.policy
    order = db["orders"][asked["order"]]
    rules = {NOT_YOURS} if order["customer"] != case.customer else set[str]()
    if case.request.name in ("cancel_order", "change_address") and order["status"] != "pending":
        rules.add("not_pending")
    if case.request.name == "cancel_order" and asked["reason"] not in policy["cancel_reasons"]:
        rules.add("reason_not_accepted")
    if case.request.name in ("return_item", "exchange_item"):
        rules |= _sent_back(db, policy, order, asked)
    return frozenset(rules)


def _sent_back(
    db: Database, policy: Mapping[str, Any], order: Mapping[str, Any], asked: Mapping[str, Any]
) -> set[str]:
    rules: set[str] = set()
    if order["status"] != "delivered":
        rules.add("not_delivered")
    elif db["today"] - order["delivered_on"] > policy["return_days"]:
        rules.add("too_late")
    if order["items"][asked["article"]]["final_sale"]:
        rules.add("final_sale")
    if "refund_to" in asked and asked["refund_to"] not in (order["paid_with"], CREDIT):
        rules.add("other_payment")
    if "new_article" in asked:
        new, old = (db["articles"][asked[name]] for name in ("new_article", "article"))
        if new["product"] != old["product"]:
            rules.add("other_product")
        if new["stock"] < 1:
            rules.add("out_of_stock")
    return rules


def policy_lines(policy: Mapping[str, Any]) -> list[str]:
    """The shop's rules with their codes, for the clerk."""
    days, reasons = policy["return_days"], " or ".join(policy["cancel_reasons"])
    return [
        f"{NOT_VERIFIED}: the customer's email and zip code do not fit together.",
        f"{NOT_YOURS}: the order belongs to another customer.",
        "not_pending: only pending orders are cancelled or sent to another address.",
        f"reason_not_accepted: orders are cancelled only for the reasons {reasons}.",
        "not_delivered: only articles of delivered orders are returned or exchanged.",
        f"too_late: returns and exchanges end {days} days after delivery.",
        "final_sale: articles on final sale are neither returned nor exchanged.",
        f"other_payment: money goes to what the order was paid with, or to {CREDIT}.",
        "other_product: an article is exchanged only for another one of the same product.",
        "out_of_stock: an article without stock is not given in exchange.",
    ]


def read(db: Database, call: Call) -> dict[str, Any] | str:
    """What a reading tool shows, or why it shows nothing."""
    asked = call.arguments
    if call.name == "list_orders":
        if asked["customer"] not in db["customers"]:
            return "there is no such customer"
        mine = {k: o for k, o in db["orders"].items() if o["customer"] == asked["customer"]}
        return {"orders": {key: list(order["items"]) for key, order in mine.items()}}
    if call.name == "get_order":
        order = db["orders"].get(asked["order"])
        if order is None:
            return "there is no such order"
        return {"order": asked["order"], **order, "today": db["today"]}
    article = db["articles"].get(asked["article"])
    return {"article": asked["article"], **article} if article else "there is no such article"


def write(db: Database, call: Call) -> Database | str:
    """The changed database, or why nothing changed. The tool does not know the policy."""
    asked, after = call.arguments, copied(db)
    order = after["orders"].get(asked["order"])
    if order is None:
        return "there is no such order"
    if call.name == "cancel_order":
        order["status"], order["reason"] = "cancelled", asked["reason"]
    elif call.name == "change_address":
        order["address"] = asked["address"]
    elif asked["article"] not in order["items"]:
        return "the order has no such article"
    elif call.name == "return_item":
        item = order["items"].pop(asked["article"])
        order["refunds"] = [*order.get("refunds", []), [asked["refund_to"], item["price"]]]
    elif asked["new_article"] not in after["articles"]:
        return "there is no such article"
    else:
        item = order["items"].pop(asked["article"])
        order["items"][asked["new_article"]] = item
        after["articles"][asked["new_article"]]["stock"] -= 1
    return after


def _drawn_db(rng: Random) -> Database:
    customers = drawn_customers(rng, 4)
    articles: dict[str, Any] = {}
    for product in rng.sample(PRODUCTS, 3):
        for colour in rng.sample(COLOURS, 2):
            key = drawn_id(rng, "A", articles)
            articles[key] = {
                "product": f"{product}",
                "colour": colour,
                "price": rng.randint(5, 120),
                "stock": rng.randint(1, 9),
            }
    today, orders = rng.randint(200, 300), dict[str, Any]()
    for customer in [*customers, *rng.sample(list(customers), 2)]:
        status = rng.choice(("pending", "shipped", "delivered"))
        delivered = {"delivered_on": today - rng.randint(1, 60)} if status == "delivered" else {}
        orders[drawn_id(rng, "R", orders)] = {
            "customer": customer,
            "status": status,
            **delivered,
            "paid_with": rng.choice(CARDS),
            "address": drawn_address(rng),
            "items": {
                key: {"price": articles[key]["price"], "final_sale": rng.random() < 0.15}
                for key in rng.sample(list(articles), 2)
            },
        }
    return {"today": today, "customers": customers, "orders": orders, "articles": articles}


def _steered(
    rng: Random,
    db: Database,
    order: dict[str, Any],
    article: str,
    kind: str,
    policy: Mapping[str, Any],
) -> None:
    """Make most requests allowed, and most of the others break just one rule."""
    if kind in ("cancel_order", "change_address"):
        order["status"] = "pending" if rng.random() < 0.7 else rng.choice(("shipped", "delivered"))
    else:
        order["status"] = "delivered" if rng.random() < 0.9 else "shipped"
        order["items"][article]["final_sale"] = rng.random() < 0.15
    order.pop("delivered_on", None)
    if order["status"] == "delivered":
        days = policy["return_days"]
        late = rng.randint(1, 9) if rng.random() < 0.2 else -rng.randint(0, days - 1)
        order["delivered_on"] = db["today"] - days - late


def _arguments(
    rng: Random, db: Database, order_id: str, article: str, kind: str, policy: Mapping[str, Any]
) -> dict[str, Any]:
    order = db["orders"][order_id]
    if kind == "cancel_order":
        accepted = policy["cancel_reasons"]
        refused = [reason for reason in REASONS if reason not in accepted]
        return {
            "order": order_id,
            "reason": rng.choice(accepted if rng.random() < 0.7 else refused),
        }
    if kind == "change_address":
        return {"order": order_id, "address": drawn_address(rng)}
    if kind == "return_item":
        fair = [order["paid_with"], CREDIT]
        others = [card for card in CARDS if card not in fair]
        target = rng.choice(fair if rng.random() < 0.85 else others)
        return {"order": order_id, "article": article, "refund_to": target}
    product = db["articles"][article]["product"]
    free = {k: a["product"] for k, a in db["articles"].items() if k not in order["items"]}
    same = [key for key in free if free[key] == product]
    other = [key for key in free if free[key] != product]
    new = rng.choice(same if same and rng.random() < 0.85 else other)
    if rng.random() < 0.15:
        db["articles"][new]["stock"] = 0
    return {"order": order_id, "article": article, "new_article": new}


def _has_unique(db: Database, customer: str, article: str) -> bool:
    """Whether one order alone of ``customer`` has ``article``."""
    mine = [o for o in db["orders"].values() if o["customer"] == customer]
    return sum(article in order["items"] for order in mine) == 1


SHOP = Domain(
    "shop",
    "an online shop",
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
