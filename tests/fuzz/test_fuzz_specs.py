"""A job spec is a JobSpec or a SpecInvalidError whose pointers lead into it: nothing else, soon."""

import copy
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from fuzzing import bounded, fuzzed, json_values, mutated_bytes, nested_json
from hypothesis import given
from hypothesis import strategies as st

from troupe.spec import load_spec, parse_spec
from troupe.spec.issues import SpecInvalidError
from troupe.spec.job import JobSpec
from troupe_router.jobs.record import JobRecord, record_from_fields
from troupe_router.jobs.submit import parse_body

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
SOUND = [yaml.safe_load(path.read_text("utf-8")) for path in EXAMPLES]
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
"""1 KB of YAML that stands for 400 million values."""


def accepted(document: Any) -> JobSpec | None:
    """The spec, which must then survive the way to Redis and back; or None, with sound pointers."""
    try:
        spec = parse_spec(document)
    except SpecInvalidError as error:
        assert error.issues
        for issue in error.issues:
            assert issue.pointer == "" or issue.pointer.startswith("/"), issue
            assert issue.message
            error.message.encode()  # it travels as UTF-8
        return None
    assert parse_spec(json.loads(spec.model_dump_json())) == spec
    record = JobRecord("demo-1", spec, Path("/runs/demo-1"), "queued", created_at=1.0)
    fields = {k.encode(): v.encode() for k, v in record.to_fields().items()}
    assert record_from_fields(fields).spec == spec
    return spec


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all values below ``document``."""
    pairs = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    found: list[tuple[Any, ...]] = []
    for key, value in pairs:
        found += [(*path, key), *places(value, (*path, key))]
    return found


@st.composite
def mutated_specs(draw: st.DrawFn) -> dict[str, Any]:
    """An example whose values are replaced, removed, renamed or added to."""
    document = copy.deepcopy(draw(st.sampled_from(SOUND)))
    rng = Random(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(1, 3))):
        path = rng.choice(places(document) or [("name",)])
        holder = document
        for key in path[:-1]:
            holder = holder[key]
        match draw(st.integers(0, 3)):
            case 0:
                holder[path[-1]] = draw(json_values())
            case 1:
                del holder[path[-1]]
            case 2 if isinstance(holder, dict):
                holder[draw(st.text(max_size=12))] = holder.pop(path[-1])
            case _ if isinstance(holder, dict):
                holder[draw(st.text(max_size=12))] = draw(json_values())
            case _:
                holder.append(draw(json_values()))
    return document


@fuzzed(60)
@given(mutated_specs())
def test_spec_when_mutated_then_it_is_sound_or_its_issues_say_where(document: Any) -> None:
    with bounded():
        accepted(document)


@fuzzed(30)
@given(json_values())
def test_spec_when_any_json_then_refused_with_pointers(document: Any) -> None:
    with bounded():
        assert accepted(document) is None


def test_spec_when_its_values_are_odd_in_every_place_then_refused_or_kept() -> None:
    odd = [None, [], {}, "\ud800", "\0", -1, 10**30, 1e308, float("nan"), float("inf"), True, "x:y"]
    rng = Random(0)
    for document in SOUND:
        for path in rng.sample(places(document), 6):
            for value in odd:
                changed = copy.deepcopy(document)
                holder = changed
                for key in path[:-1]:
                    holder = holder[key]
                holder[path[-1]] = value
                accepted(changed)


@st.composite
def yaml_bodies(draw: st.DrawFn) -> bytes:
    example = draw(st.sampled_from(EXAMPLES)).read_bytes()
    return draw(mutated_bytes(st.just(example)))


@pytest.mark.parametrize("media_type", ["application/yaml", "application/json"])
def test_body_when_any_bytes_then_a_spec_or_a_refusal(media_type: str) -> None:
    @fuzzed(20)
    @given(yaml_bodies())
    def holds(body: bytes) -> None:
        with bounded():
            try:
                parse_body(body, media_type=media_type)
            except SpecInvalidError as error:
                assert error.issues

    holds()


def test_file_when_any_bytes_then_a_spec_or_a_refusal(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"

    @fuzzed(20)
    @given(yaml_bodies())
    def holds(body: bytes) -> None:
        path.write_bytes(body)
        with bounded():
            try:
                load_spec(path)
            except SpecInvalidError as error:
                assert error.issues

    holds()


REST = (
    "name: x\nsteps: 1\nworkflow: {order: [t]}\nagents: {t: {policy: p}}\n"
    "policies: {p: {model: m}}\n"
)
HOSTILE_YAML = {
    "alias bomb": BOMB + "name: x\n",
    "alias bomb in params": REST
    + "task:\n  name: plan_path\n  params:\n"
    + "".join(f"    {line}\n" for line in BOMB.splitlines()),
    "many unknown fields": "".join(f"k{i}: 1\n" for i in range(1500)),
    "long unknown field": "? " + "k" * 60_000 + "\n: 1\n",
    "large": "a: " + "x" * 300_000,
    "alias of itself": REST + "task: {name: plan_path, params: {a: &a [*a]}}\n",
    "mapping of itself": REST + "task: &t {name: plan_path, params: *t}\n",
    "merge bomb": "a: &a {x: 1}\n" + "".join(f"k{i}: {{<<: [*a, *a, *a]}}\n" for i in range(600)),
    "deep list": "name: " + "[" * 600 + "]" * 600,
    "deep mapping": "name: " + "{a: " * 5000 + "1" + "}" * 5000,
    "deep block": "\n".join(" " * i + "a:" for i in range(600)),
    "Python object": "name: !!python/object/apply:os.system ['true']",
    "unknown tag": "name: !x y",
    "bad date": "name: 2001-99-99",
    "bad time": "name: 2001-01-01T99:99:99Z",
    "long number": "steps: " + "9" * 5000,
    "sexagesimal": "steps: " + "1" + ":59" * 2000,
    "bad binary": "name: !!binary '%%%'",
    "unhashable key": "{[1, 2]: 3}",
    "two documents": "name: a\n---\nname: b\n",
    "not UTF-8": b"name: \xff\xfe\xfa",
    "half of UTF-16": b"\xff\xfen",
    "NUL": b"name: a\x00b",
    "unknown directive": "%FOO bar\n---\nname: a",
    "empty": "",
    "set": "!!set {a, b}",
    "set in params": REST + "task: {name: plan_path, params: {a: !!set {b}}}",
    "date in params": REST + "task: {name: plan_path, params: {a: 2001-01-01}}",
    "binary in params": REST + "task: {name: plan_path, params: {a: !!binary gICA}}",
    "number as key": REST + "task: {name: plan_path, params: {1: 2}}",
    "surrogate": REST + 'task: {name: plan_path, params: {a: "\\ud800"}}',
}


@pytest.mark.parametrize("name", HOSTILE_YAML)
def test_yaml_when_hostile_then_refused_in_little_time(name: str, tmp_path: Path) -> None:
    text = HOSTILE_YAML[name]
    body = text if isinstance(text, bytes) else text.encode()
    path = tmp_path / "job.yaml"
    path.write_bytes(body)
    with bounded(30.0):
        with pytest.raises(SpecInvalidError) as by_file:
            load_spec(path)
        with pytest.raises(SpecInvalidError) as by_rest:
            parse_body(body, media_type="application/yaml")
    assert len(by_file.value.message) < 300_000 and len(by_rest.value.message) < 300_000


@pytest.mark.parametrize("kind", ["list", "object"])
@pytest.mark.parametrize("depth", [50, 150, 300, 900, 5000, 200_000])
def test_params_when_deep_then_a_spec_that_can_be_stored_or_a_refusal(
    depth: int, kind: str
) -> None:
    head = '{"name": "x", "steps": 1, "task": {"name": "plan_path", "params": {"a": '
    tail = (
        '}}, "workflow": {"order": ["t"]}, "agents": {"t": {"policy": "p"}}, '
        '"policies": {"p": {"model": "m"}}}'
    )
    with bounded(30.0):
        try:
            spec = parse_body((head + nested_json(depth, kind) + tail).encode())
        except SpecInvalidError as error:
            assert depth > 50, error
        else:
            assert parse_spec(json.loads(spec.model_dump_json())) == spec
