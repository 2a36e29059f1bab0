r"""The unit at the end of an answer: which words are one, and which make another answer.

Units are passed over, never compared. A word in a command of LaTeX (``\text{ cm}``) is taken for
one more easily than a bare one, which may be a product of variables: ``3t`` is not 3. math-verify's
own list is not used: it has single letters.
"""

import re

TEXT = r"\\(?:text(?:rm|bf|it|normal)?|mathrm|mbox)"
"""The commands that set words."""

MAX_UNITS = 4
r"""Units after each other that are passed over, as in ``5\text{ m}\,\text{s}^{-1}``."""

_SYMBOLS = "mm cm km kg ft lb oz in yd hr sq ml am pm"
_SYMBOLS_BEHIND_A_SPACE = "kJ kW MW kN kHz MHz GHz kPa dB eV"
_SYMBOLS_IN_TEXT = """
dm mg ms nm ha mi cu hz pa hp cc cl dl pt qt mA mV mW th st nd rd
m g s h l t L N J W V A K C F T
"""
_NAMES = """
inch inches foot feet yard mile meter metre kilometer kilometre centimeter centimetre millimeter
millimetre square cubic acre hectare liter litre milliliter gallon quart pint cup ounce gram
kilogram pound ton tonne sec second min minute hour day week month year deg degree radian rad
percent dollar cent euro unit mph kmh kph rpm newton joule watt volt ohm mol
"""
_LONG_NAME = 4
"""Letters of a listed name from which on it is no product of variables."""
_OPERATIONS = """
squared cubed factorial mod base choose pi sqrt sin cos tan cot csc log exp gcd lcm times plus minus
theta alpha beta
"""
"""What is done to what stands right before it, or multiplies it."""
_BARE_SYMBOLS = frozenset(_SYMBOLS.split())
_SPACED_SYMBOLS = _BARE_SYMBOLS | frozenset(_SYMBOLS_BEHIND_A_SPACE.split())
_ALL_SYMBOLS = _SPACED_SYMBOLS | frozenset(_SYMBOLS_IN_TEXT.split())
_LONG_SYMBOLS = frozenset(symbol for symbol in _ALL_SYMBOLS if len(symbol) > 1)
_LISTED = frozenset(_NAMES.split())
_NO_UNITS = frozenset(_OPERATIONS.split())
_BETWEEN = frozenset({"per", "of", "a", "an", "each"})
_SPACED_RATES = frozenset({"m/s", "g/L", "L/s"})
"""Rates of single letters that may stand without a command, behind a space."""

_OTHER_NUMBER = re.compile(
    r"(?:hundred|thousand|million|billion|trillion|dozen|hal(?:f|ve)|third|fourth|fifth|sixth"
    r"|seventh|eighth|ninth|tenth|hundredth|thousandth|millionth|or|and|to)s?"
)
"""What makes another number of the one before it, or several."""
_GAP = r"(?:\s|~|\\[,;:! ]|\\q?quad(?![a-zA-Z]))"
_POWER = r"(?:\s*\^\s*(?:\{\s*-?[1-3]\s*\}|[23])|[²³])?"
_IN_TEXT = rf"{TEXT}\s*\{{([^{{}}]*)\}}{_POWER}"
_SET_WORDS = re.compile(_IN_TEXT)
_WRAPPED = re.compile(
    rf"(?:{_IN_TEXT}(?:\s*(?:[/-]|\\cdot)\s*{_IN_TEXT})?"
    rf"|\\[dt]?frac\s*\{{\s*{_IN_TEXT}\s*\}}\s*\{{\s*{_IN_TEXT}\s*\}})(?:{_GAP}|[.$])*$"
)
_BARE = re.compile(
    r"(?<![A-Za-z\\])([A-Za-z]{1,24}\.?(?:\s*/\s*[A-Za-z]{1,24}|(?:\s+[A-Za-z]{1,24}\.?){1,7})?)"
    rf"{_POWER}(?:{_GAP}|[.$])*$"
)
_PREFIX = re.compile(rf"^(.*?[A-Za-z0-9)}}\]%!.])(?:{_GAP}|\$)*$", re.DOTALL)
_HALF_DAY = re.compile(r"(?<![A-Za-z])([ap])(?:\.\s?m\.?|m)(?![A-Za-z])", re.IGNORECASE)
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_NUMBER_COMMAND = re.compile(r"\\(?:[dt]?frac|circ|degree|left|right|displaystyle|q?quad)(?![a-z])")
_EXPONENT = re.compile(r"(?<=[\d.])[eE](?=[+-]?\d)")


def without_unit(text: str) -> str:
    r"""``text`` without the units at its end.

    Words after a term with variables are kept, unless they are listed units in a command; so are
    ``\mathrm{i}``, ``\mathrm{e}`` and what makes another number: ``7 \text{ million}``.
    """
    for _ in range(MAX_UNITS):
        rest = _before_wrapped(text) or _before_bare(text)
        if rest is None:
            break
        text = rest
    return text


def is_other_half_day(one: str, other: str) -> bool:
    """Whether one is a time before noon and the other a time after it."""
    halves = [_HALF_DAY.findall(text) for text in (one, other)]
    return all(halves) and halves[0][-1].lower() != halves[1][-1].lower()


def _before_wrapped(text: str) -> str | None:
    unit = _WRAPPED.search(text)
    prefix = unit and _PREFIX.match(text[: unit.start()])
    if not unit or not prefix:
        return None
    words = [_words(content) for content in unit.groups() if content is not None]
    # Single letters are names of points and choices too.
    if all(_are_units(part, _LONG_SYMBOLS) for part in words):
        return prefix[1]
    is_unit = all(_may_be_unit(part, _ALL_SYMBOLS) for part in words)
    return prefix[1] if is_unit and _is_constant(prefix[1]) else None


def _before_bare(text: str) -> str | None:
    text = _HALF_DAY.sub(r"\1m", text)
    unit = _BARE.search(text)
    prefix = unit and _PREFIX.match(text[: unit.start()])
    if not unit or not prefix:
        return None
    has_gap = len(prefix[1]) < unit.start()
    names = _words(unit[1]) or [""]
    if has_gap and _are_units(names, frozenset()) and min(map(len, names)) >= _LONG_NAME:
        return prefix[1]
    if not _is_constant(prefix[1]):
        return None
    if has_gap and "".join(unit[1].split()) in _SPACED_RATES:
        return prefix[1]
    first, *over = (_words(part) for part in unit[1].split("/"))
    if _are_units(first, _BARE_SYMBOLS) and all(_are_units(w, _ALL_SYMBOLS) for w in over):
        return prefix[1]
    is_number = not _COMMAND.search(_NUMBER_COMMAND.sub("", prefix[1]))
    is_unit = has_gap and is_number and not over and _may_be_unit(first, _SPACED_SYMBOLS)
    return prefix[1] if is_unit else None


def _words(content: str) -> list[str] | None:
    """The words of a unit; None when it holds a number or anything that is no unit."""
    plain = re.sub(r"\^[23]|[²³]|\$", "", _HALF_DAY.sub(r"\1m", content))
    return None if re.search(r"[\d=<>+*\\^_]", plain) else re.findall(r"[^\W\d_]+", plain)


def _are_units(words: list[str] | None, symbols: frozenset[str]) -> bool:
    """Whether all are listed units, or stand between such."""
    if not words or not _is_listed(words[0], symbols):
        return False
    return all(_is_listed(word, symbols) or word in _BETWEEN for word in words)


def _may_be_unit(words: list[str] | None, symbols: frozenset[str]) -> bool:
    """Whether they may be a unit after a number: ``apples``, ``of the cake``; not ``ab``."""
    if not words or any(_OTHER_NUMBER.fullmatch(word.lower()) for word in words):
        return False
    first = words[0]
    if first.lower() in _NO_UNITS and words != ["times"]:
        return False
    is_between = first in _BETWEEN and len(words) > 1 and len(words[1]) > 2
    return len(first) > 2 or is_between or _is_listed(first, symbols)


def _is_listed(word: str, symbols: frozenset[str]) -> bool:
    if word in symbols:
        return True
    small = word.lower()
    singular = small.removesuffix("s")
    return small in _LISTED or singular in _LISTED or (len(singular) > 1 and singular in symbols)


def _is_constant(prefix: str) -> bool:
    """Whether it holds no letter but in LaTeX's commands, and in units behind a number."""
    plain = _SET_WORDS.sub(
        lambda words: "" if _are_units(_words(words[1]), _ALL_SYMBOLS) else words[0], prefix
    )
    if plain != prefix and not re.search(r"\d", plain):
        return False
    return not re.search(r"[^\W\d_]", _COMMAND.sub("", _EXPONENT.sub("", plain)))
