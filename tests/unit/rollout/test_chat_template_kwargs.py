"""``chat_template_kwargs``: a policy's variables of its chat template."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from troupe.errors import InvalidArgumentError
from troupe.spec import parse_spec
from troupe.spec.job import JobSpec
from troupe.spec.policy import PolicySpec
from troupe.tasks.family import Message
from troupe_rollout.engines.chat import ChatTemplate
from troupe_rollout.engines.cpu import CpuEngine

CHAT = [Message("user", "go")]
THINKING_OFF = "<think>\n\n</think>\n\n"
TEMPLATE = (
    "{% for m in messages %}{{ m.content }}{% endfor %}"
    "{% if enable_thinking is defined and enable_thinking is false %}"
    + THINKING_OFF
    + "{% endif %}"
)
"""The end of Qwen3's template."""


@pytest.fixture
def thinking_model(model_dir: Path, tmp_path: Path) -> Path:
    """The tiny model with a template that reads `enable_thinking`."""
    folder = tmp_path / "thinking"
    folder.mkdir()
    for path in model_dir.iterdir():
        (folder / path.name).symlink_to(path)
    tokenizer: Any = AutoTokenizer.from_pretrained(model_dir)
    tokenizer.chat_template = TEMPLATE
    for path in folder.iterdir():
        if path.name.startswith(("tokenizer", "chat_template")):
            path.unlink()
    tokenizer.save_pretrained(folder)
    return folder


async def test_render_when_policies_of_one_base_differ_then_each_has_its_own_prompt(
    thinking_model: Path,
) -> None:
    plain = PolicySpec(model=str(thinking_model))
    engine = CpuEngine()
    quiet = plain.model_copy(update={"chat_template_kwargs": {"enable_thinking": False}})
    await engine.start({"plain": plain, "quiet": quiet})
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(thinking_model)
        thoughts = tokenizer.encode("go" + THINKING_OFF)
        assert engine.render("quiet", CHAT) == thoughts
        assert engine.render("plain", CHAT) == tokenizer.encode("go")
        assert len(thoughts) > len(engine.render("plain", CHAT))
    finally:
        await engine.stop()


async def test_start_when_the_template_has_no_such_variable_then_refused_by_name(
    thinking_model: Path,
) -> None:
    spec = PolicySpec(model=str(thinking_model), chat_template_kwargs={"enable_thinkin": False})
    engine = CpuEngine()
    with pytest.raises(InvalidArgumentError, match="has no variable 'enable_thinkin'"):
        await engine.start({"p": spec})
    await engine.stop()


@pytest.mark.parametrize("name", ["messages", "tokenize", "add_generation_prompt"])
def test_spec_when_a_variable_is_the_engines_then_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' is no variable of a template"):
        PolicySpec(model="m", chat_template_kwargs={name: True})


def test_spec_when_a_variable_is_false_then_stays_so_and_is_left_out_where_there_is_none() -> None:
    spec = _spec({"enable_thinking": False})
    again = JobSpec.model_validate_json(spec.model_dump_json())
    assert again.policies["p"].chat_template_kwargs["enable_thinking"] is False
    assert "chat_template_kwargs" not in _spec({}).model_dump_json()


def _spec(variables: dict[str, Any]) -> JobSpec:
    return parse_spec(
        {
            "name": "x",
            "steps": 1,
            "task": {"name": "plan_path"},
            "workflow": {"order": ["tool", "planner"]},
            "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
            "policies": {"p": {"model": "m", "chat_template_kwargs": variables}},
        }
    )


@pytest.mark.parametrize("is_fast", [True, False])
def test_render_when_compared_with_transformers_then_ids_are_equal(
    model_dir: Path, is_fast: bool
) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(model_dir)
    assert tokenizer.is_fast

    class Slow:
        """The same tokenizer, asked as one that has no fast encoding."""

        is_fast = False

        def __getattr__(self, name: str) -> Any:
            return getattr(tokenizer, name)

    chats = [
        [Message("user", "go")],
        [
            Message("system", "be brief"),
            Message("user", "Käse, 你好, 🧀 <|im_end|> and 314\n\n "),
        ],
    ]
    for chat in chats:
        plain = [{"role": message.role, "content": message.text} for message in chat]
        expected = tokenizer.apply_chat_template(
            plain, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        assert ChatTemplate(tokenizer if is_fast else Slow(), "tiny").render(chat) == list(expected)


def test_render_when_a_text_is_long_then_ids_are_equal_and_other_threads_may_run(
    model_dir: Path,
) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(model_dir)
    text = "go and come back " * 5000

    class Batches:
        """The tokenizer without the call that holds the GIL."""

        is_fast, truncation, padding = True, None, None

        def __getattr__(self, name: str) -> Any:
            return getattr(tokenizer, name)

        @property
        def backend_tokenizer(self) -> Any:
            return self

        def encode_batch(self, texts: list[str], *, add_special_tokens: bool) -> Any:
            backend = tokenizer.backend_tokenizer
            return backend.encode_batch(texts, add_special_tokens=add_special_tokens)

        def encode(self, text: str, **_: Any) -> Any:
            raise AssertionError("this holds the GIL")

    expected = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
    )
    assert ChatTemplate(Batches(), "tiny").render([Message("user", text)]) == list(expected)


def test_render_when_the_tokenizer_brings_a_length_then_nothing_is_cut_or_padded(
    model_dir: Path, tmp_path: Path
) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(model_dir)
    chats = [[Message("user", "go")], [Message("user", "go and come back " * 9)]]
    expected = [ChatTemplate(tokenizer, "tiny").render(chat) for chat in chats]
    # As a script does before it saves: the lengths are stored in tokenizer.json.
    tokenizer("go", truncation=True, max_length=12, padding="max_length")
    tokenizer.save_pretrained(tmp_path)
    for chat, ids in zip(chats, expected, strict=True):
        saved: Any = AutoTokenizer.from_pretrained(tmp_path)
        assert saved.backend_tokenizer.truncation
        assert saved.backend_tokenizer.padding
        assert ChatTemplate(saved, "tiny").render(chat) == ids
