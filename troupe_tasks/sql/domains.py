"""Ten domains of three tables each: who, what, and a link between them, with their words.

A domain renames the tables and columns of one shape, so that every question template can be
asked in every domain. Owns words only.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Domain:
    """The names of one domain.

    ``a`` acts (customers), ``b`` is acted on (products), ``link`` joins them (purchases).
    ``groups`` and ``kinds`` are the natural words of two text columns, which the database may hold
    in another form. The ``*_words`` are how a question names a table's rows.
    """

    name: str
    a: str
    a_name: str
    a_group: str
    a_number: str
    b: str
    b_name: str
    b_kind: str
    b_number: str
    link: str
    quantity: str
    day: str
    a_words: str
    b_words: str
    link_words: str
    groups: tuple[str, ...]
    kinds: tuple[str, ...]
    b_names: tuple[str, ...]

    @property
    def a_ref(self) -> str:
        """The link's column that names a row of ``a``."""
        return f"{self.a}_id"

    @property
    def b_ref(self) -> str:
        """The link's column that names a row of ``b``."""
        return f"{self.b}_id"


PEOPLE = ("Ada", "Bo", "Cyrus", "Dee", "Eli", "Fay", "Gus", "Hana", "Ivy", "Jo", "Kim", "Lee")
_CITIES = ("Oslo", "Lima", "Rome", "Cairo", "Quito", "Seoul")
_TEAMS = ("North", "South", "East", "West", "Centre")


def _domain(
    name: str, a: str, b: str, link: str, columns: str, words: str, kinds: str, b_names: str,
    groups: tuple[str, ...] = _CITIES,
) -> Domain:  # fmt: skip
    a_group, a_number, b_name, b_kind, b_number, quantity, day = columns.split()
    a_words, b_words, link_words = words.split(", ")
    return Domain(
        name, a, "name", a_group, a_number, b, b_name, b_kind, b_number, link, quantity, day,
        a_words, b_words, link_words, groups, tuple(kinds.split()), tuple(b_names.split()),
    )  # fmt: skip


DOMAINS: Mapping[str, Domain] = {
    domain.name: domain
    for domain in (
        _domain(
            "shop", "customer", "product", "purchase", "city age title category price amount day",
            "customers, products, purchases", "toys books tools garden",
            "Lamp Kite Spade Novel Drill Puzzle Rake Atlas",
        ),
        _domain(
            "school", "student", "course", "enrolment", "town age title field credits points day",
            "students, courses, enrolments", "science history music sport",
            "Optics Rome Choir Judo Botany Cartography Piano Fencing",
        ),
        _domain(
            "clinic", "patient", "treatment", "visit", "city age label section cost minutes day",
            "patients, treatments, visits", "dental eyes heart skin",
            "Filling Lens Scan Cream Crown Check Pacer Laser",
        ),
        _domain(
            "flights", "pilot", "route", "flight", "base hours code region miles seats day",
            "pilots, routes, flights", "europe asia africa america",
            "AX1 BK2 CM3 DQ4 ES5 FT6 GV7 HW8",
        ),
        _domain(
            "library", "reader", "book", "loan", "district age title genre pages weeks day",
            "readers, books, loans", "crime poetry travel cooking",
            "Harbour Ashes Saffron Meridian Lantern Orchard Frost Compass", _TEAMS,
        ),
        _domain(
            "farm", "farmer", "crop", "harvest", "region acres variety family weeks tons day",
            "farmers, crops, harvests", "grain fruit root leaf",
            "Rye Pear Beet Kale Oats Plum Carrot Chard", _TEAMS,
        ),
        _domain(
            "gym", "member", "session", "booking", "city age title style minutes places day",
            "members, sessions, bookings", "yoga boxing rowing dance",
            "Dawn Jab Stroke Tango Calm Hook Sprint Waltz",
        ),
        _domain(
            "museum", "guide", "exhibit", "tour", "wing years title period rooms guests day",
            "guides, exhibits, tours", "bronze roman modern gothic",
            "Sword Mosaic Canvas Arch Shield Villa Cube Spire", _TEAMS,
        ),
        _domain(
            "fleet", "driver", "truck", "trip", "depot age plate make load stops day",
            "drivers, trucks, trips", "volvo scania iveco tatra",
            "T11 T12 T23 T24 T35 T36 T47 T48",
        ),
        _domain(
            "studio", "artist", "song", "concert", "home age title mood seconds tickets day",
            "artists, songs, concerts", "calm happy dark wild",
            "Ember Tide Gravel Neon Willow Echo Storm Velvet",
        ),
    )
}  # fmt: skip
