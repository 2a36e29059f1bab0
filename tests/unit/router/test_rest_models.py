"""Shapes of the REST API: what cannot be written as UTF-8, and what the examples say."""

import importlib
import inspect
import pkgutil

import pytest
from pydantic import BaseModel, ValidationError

from troupe.clients.rest import models
from troupe.clients.rest.models.episodes import EpisodePageQuery
from troupe.clients.rest.models.events import EventDocument
from troupe_router.run.episode_pages import _digest

HALF = "a\ud83d"


def shapes() -> list[type[BaseModel]]:
    names = [m.name for m in pkgutil.iter_modules(models.__path__)]
    modules = [importlib.import_module(f"{models.__name__}.{name}") for name in names]
    return [
        cls
        for module in modules
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if issubclass(cls, BaseModel) and cls.__module__ == module.__name__
    ]


def test_details_when_they_hold_half_a_character_then_are_written_with_a_mark() -> None:
    event = EventDocument(id="1-0", type="x", data={HALF: [HALF, {"whole": "\U0001f600"}]})
    assert event.data == {"a\ufffd": ["a\ufffd", {"whole": "\U0001f600"}]}
    assert event.model_dump_json()


def test_examples_when_read_then_are_what_they_are_examples_of() -> None:
    examples = {
        cls: extra["example"]
        for cls in shapes()
        if isinstance(extra := cls.model_config.get("json_schema_extra"), dict)
        and "example" in extra
    }
    assert len(examples) >= 5
    for cls, example in examples.items():
        assert cls.model_validate(example).model_dump(mode="json") == example


def test_names_when_two_shapes_are_compared_then_differ_and_say_what_they_are() -> None:
    names = [cls.__name__ for cls in shapes()]
    assert len(names) == len(set(names)) > 40
    ends = ("Document", "Page", "List", "Query", "Change", "Request", "Filter", "Parameters")
    assert [name for name in names if not name.endswith(ends)] == []


def test_cursor_when_only_the_page_differs_then_belongs_to_the_same_filter() -> None:
    one, other = EpisodePageQuery(agent="a"), EpisodePageQuery(agent="a", limit=3, cursor="x")
    assert _digest(one) == _digest(other) != _digest(EpisodePageQuery(agent="b"))


def test_query_when_a_name_is_not_known_then_is_refused() -> None:
    with pytest.raises(ValidationError, match="extra_forbidden"):
        EpisodePageQuery.model_validate({"agnet": "a"})
