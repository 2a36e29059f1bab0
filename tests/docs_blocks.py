"""The code blocks and inline commands of the pages that people read."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("benchmarks/**/*.md"),
        *ROOT.glob("examples/**/*.md"),
    ]
)
SHELL = ("", "sh", "bash", "console")
COMMAND_END = re.compile(r"[|&;<>]+")
PLACEHOLDER = re.compile(r"<[^<>]*>")
MARKDOWN = MarkdownIt().enable("table")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: ``page`` from the repository's root, ``line`` of its fence, from 1."""

    page: str
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Command:
    """A command line of a page; ``is_inline`` for one that stands in a sentence."""

    page: str
    line: int
    words: tuple[str, ...]
    is_inline: bool

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}: {shlex.join(self.words)}"


def blocks(*languages: str) -> list[Block]:
    """Every fenced block in one of the languages."""
    return [
        Block(str(page.relative_to(ROOT)), token.map[0] + 1, token.info.strip(), token.content)
        for page in PAGES
        for token in MARKDOWN.parse(page.read_text("utf-8"))
        if token.type == "fence" and token.map and token.info.strip() in languages
    ]


def commands(program: str) -> list[Command]:
    """Every command line of ``program``, in shell blocks and in sentences."""
    shown = [
        Command(block.page, line, words, is_inline=False)
        for block in blocks(*SHELL)
        for line, text in _logical_lines(block)
        for words in _commands_of(text)
    ]
    return [command for command in [*shown, *_inline()] if command.words[0] == program]


def _inline() -> Iterator[Command]:
    for page in PAGES:
        for token in MARKDOWN.parse(page.read_text("utf-8")):
            for child in token.children or []:
                if child.type == "code_inline" and token.map:
                    for words in _commands_of(child.content):
                        yield Command(str(page.relative_to(ROOT)), token.map[0] + 1, words, True)


def _logical_lines(block: Block) -> Iterator[tuple[int, str]]:
    """Lines without their prompt, those that end with a backslash joined to the next."""
    text, first = "", 0
    for number, line in enumerate(block.text.splitlines(), start=block.line + 1):
        first = first if text else number
        text += line.strip().removeprefix("$ ")
        if text.endswith("\\"):
            text = text[:-1]
            continue
        yield first, text
        text = ""


def _commands_of(text: str) -> list[tuple[str, ...]]:
    """The commands of one line; assignments before them and what follows a redirection are cut."""
    text = PLACEHOLDER.sub("PLACEHOLDER", text.replace("...", ""))
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = ""  # a shell's comment begins a word; this one would cut `v1#MODEL`
    try:
        words = list(lexer)
    except ValueError:  # prose or a drawing: no closing quotation
        words = text.partition(" #")[0].split()
    found: list[list[str]] = [[]]
    for word in words:
        if word.startswith("#"):
            break
        if COMMAND_END.fullmatch(word):
            found.append([])
        elif found[-1] or not re.match(r"[A-Z_]+=", word):
            found[-1].append(word)
    return [tuple(command) for command in found if command]
