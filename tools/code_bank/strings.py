"""Functions on text."""

from random import Random

from tools.code_bank.draft import function, letters
from troupe_tasks.code.problem import Checker

DRAFTS = (
    function(
        "vowel_count",
        "Write vowel_count(text: str) -> int. It returns how many of its letters are a, e, i, o or "
        "u, in upper or lower case.",
        """
        def vowel_count(text):
            return sum(c in "aeiou" for c in text.lower())
        """,
        shown=[("Apple",), ("xyz",)],
        edges=[("",), ("AEIOU",), ("y",), ("a1 e!",)],
        draw=lambda r: (letters(r, 3, 12, "aEiOubcDy "),),
    ),
    function(
        "snake_case",
        "Write snake_case(name: str) -> str. It turns a name such as fooBarBaz into foo_bar_baz: "
        "each upper-case letter becomes lower case, with an underscore before it unless it is the "
        "first character.",
        """
        def snake_case(name):
            out = ""
            for i, c in enumerate(name):
                if c.isupper() and i > 0:
                    out += "_"
                out += c.lower()
            return out
        """,
        shown=[("fooBar",), ("plain",)],
        edges=[("",), ("FooBar",), ("aBC",), ("x1Y2",)],
        draw=lambda r: (letters(r, 2, 9, "abcABC1"),),
    ),
    function(
        "longest_unique",
        "Write longest_unique(text: str) -> int. It returns the length of the longest piece of "
        "neighbouring characters that are all different.",
        """
        def longest_unique(text):
            last = {}
            start = best = 0
            for i, c in enumerate(text):
                if c in last and last[c] >= start:
                    start = last[c] + 1
                last[c] = i
                best = max(best, i - start + 1)
            return best
        """,
        shown=[("abcab",), ("aaa",)],
        edges=[("",), ("a",), ("abba",), ("abcdef",), ("aabcbd",)],
        draw=lambda r: (letters(r, 2, 12, "abcd"),),
        difficulty="medium",
    ),
    function(
        "edit_distance",
        "Write edit_distance(a: str, b: str) -> int. It returns the least number of letters to "
        "insert, delete or replace that turn a into b.",
        """
        def edit_distance(a, b):
            row = list(range(len(b) + 1))
            for i, x in enumerate(a, 1):
                before, row[0] = row[0], i
                for j, y in enumerate(b, 1):
                    here = min(row[j] + 1, row[j - 1] + 1, before + (x != y))
                    before, row[j] = row[j], here
            return row[-1]
        """,
        shown=[("cat", "cut"), ("abc", "ab")],
        edges=[("", ""), ("", "abc"), ("abc", ""), ("ab", "ba"), ("kitten", "sitting")],
        draw=lambda r: (letters(r, 1, 7), letters(r, 1, 7)),
        difficulty="medium",
    ),
    function(
        "parse_ranges",
        "Write parse_ranges(text: str) -> list[int]. The text holds parts between commas, each a "
        "number or a range 'a-b' with both ends counted (a <= b). It returns all numbers, rising, "
        "without repeats. An empty text gives an empty list.",
        """
        def parse_ranges(text):
            found = set()
            for part in text.split(","):
                if not part:
                    continue
                a, _, b = part.partition("-")
                found.update(range(int(a), int(b or a) + 1))
            return sorted(found)
        """,
        shown=[("1-3,7",), ("4",)],
        edges=[("",), ("5-5",), ("3,1-2,2",), ("8,8,8",), ("10-12,1",)],
        draw=lambda r: (",".join(_part(r) for _ in range(r.randint(1, 5))),),
        difficulty="medium",
    ),
    function(
        "mask_email",
        "Write mask_email(address: str) -> str. The address has one '@'. It keeps the first and "
        "the last character of the part before it, puts one '*' for each character between them, "
        "and leaves the rest. A part of one or two characters becomes all '*'.",
        """
        def mask_email(address):
            name, _, host = address.partition("@")
            if len(name) < 3:
                masked = "*" * len(name)
            else:
                masked = name[0] + "*" * (len(name) - 2) + name[-1]
            return masked + "@" + host
        """,
        shown=[("alice@x.org",), ("bo@y.com",)],
        edges=[("a@b",), ("abc@d.e",), ("abcd@d.e",), ("@x",)],
        draw=lambda r: (letters(r, 1, 8, "abcxyz.") + "@" + letters(r, 2, 5, "mn."),),
    ),
    function(
        "count_substring",
        "Write count_substring(text: str, part: str) -> int. It returns at how many places the "
        "part begins in the text; places may overlap. An empty part begins nowhere.",
        """
        def count_substring(text, part):
            if not part:
                return 0
            return sum(text.startswith(part, i) for i in range(len(text)))
        """,
        shown=[("banana", "an"), ("abc", "d")],
        edges=[("aaaa", "aa"), ("", "a"), ("abc", ""), ("ab", "abc"), ("abc", "abc")],
        draw=lambda r: (letters(r, 4, 12, "ab"), letters(r, 1, 3, "ab")),
    ),
    function(
        "title_words",
        "Write title_words(text: str) -> str. Words are separated by blanks. It makes the first "
        "letter of each word upper case and the rest lower case, except that words of up to three "
        "characters, unless they come first, are lower case. One blank separates the words of the "
        "result.",
        """
        def title_words(text):
            out = []
            for i, w in enumerate(text.split()):
                out.append(w.lower() if i > 0 and len(w) <= 3 else w[0].upper() + w[1:].lower())
            return " ".join(out)
        """,
        shown=[("the LORD of rings",), ("a tale",)],
        edges=[("",), ("OF",), ("x  yy   zzz wwww",), ("abc ABC ABCD",)],
        draw=lambda r: (" ".join(letters(r, 1, 5, "abAB") for _ in range(r.randint(1, 5))),),
    ),
    function(
        "evaluate_rpn",
        "Write evaluate_rpn(tokens: list[str]) -> int. The tokens are whole numbers and the signs "
        "+ - * in reverse Polish order: each sign works on the two values before it. It returns "
        "the value.",
        """
        def evaluate_rpn(tokens):
            stack = []
            for t in tokens:
                if t not in ("+", "-", "*"):
                    stack.append(int(t))
                    continue
                b, a = stack.pop(), stack.pop()
                stack.append(a + b if t == "+" else a - b if t == "-" else a * b)
            return stack[0]
        """,
        shown=[(["2", "3", "+"],), (["4"],)],
        edges=[
            (["5", "3", "-"],),
            (["2", "3", "4", "*", "+"],),
            (["-2", "3", "*"],),
            (["1", "2", "3", "-", "-"],),
        ],
        draw=lambda r: (_rpn(r, r.randint(1, 4)),),
        difficulty="medium",
    ),
    function(
        "any_anagram",
        "Write any_anagram(word: str) -> str. It returns the letters of the word in an order in "
        "which no two neighbours are equal, or '' when there is no such order. Any right order "
        "will do.",
        """
        def any_anagram(word):
            counts = sorted(((word.count(c), c) for c in dict.fromkeys(word)), reverse=True)
            ordered = "".join(c * n for n, c in counts)
            if counts and counts[0][0] > (len(word) + 1) // 2:
                return ""
            out = [""] * len(word)
            out[::2] = ordered[: len(out[::2])]
            out[1::2] = ordered[len(out[::2]):]
            return "".join(out)
        """,
        shown=[("aab",), ("aaa",)],
        edges=[("",), ("a",), ("aabb",), ("aaabb",), ("aaabbcc",), ("aabbb",)],
        draw=lambda r: (letters(r, 2, 7, "aabc"),),
        checker=Checker(
            kind="program",
            source=(
                "def check(given, expected, output):\n"
                "    word = given[0]\n"
                "    if expected == '' and word:\n"
                "        return output == ''\n"
                "    same = isinstance(output, str) and sorted(output) == sorted(word)\n"
                "    return same and all(a != b for a, b in zip(output, output[1:]))\n"
            ),
        ),
        difficulty="medium",
    ),
)


def _part(rng: Random) -> str:
    first = rng.randint(0, 9)
    return str(first) if rng.random() < 0.5 else f"{first}-{first + rng.randint(0, 4)}"


def _rpn(rng: Random, signs: int) -> list[str]:
    tokens = [str(rng.randint(-5, 9))]
    for _ in range(signs):
        if rng.random() < 0.5:
            tokens = [*tokens, str(rng.randint(-5, 9)), rng.choice("+-*")]
        else:
            tokens = [str(rng.randint(-5, 9)), *tokens, rng.choice("+-*")]
    return tokens
