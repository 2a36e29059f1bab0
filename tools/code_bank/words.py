"""Text on standard input."""

from random import Random

from tools.code_bank.draft import letters, line, program
from troupe_tasks.code.problem import Checker

DRAFTS = (
    program(
        "run_lengths",
        "One line holds a word of 1 to 100 lower-case letters. Print it with each run of equal "
        "letters as the letter and, when the run is longer than 1, its length.",
        """
        from itertools import groupby

        out = ""
        for letter, run in groupby(input().strip()):
            n = len(list(run))
            out += letter + (str(n) if n > 1 else "")
        print(out)
        """,
        shown=["aaabcc\n", "abc\n"],
        edges=["a\n", "aa\n", "abab\n", "zzzzzzzzzzzz\n"],
        draw=lambda r: letters(r, 2, 14, "ab") + "\n",
    ),
    program(
        "balanced",
        "One line holds 1 to 100 brackets out of ()[]{}. Print 'yes' when each is closed by its "
        "own kind and in the right order, else print the number of the first bracket, counted "
        "from 1, at which this is known to fail. When only closing ones are missing, print 'open' "
        "instead.",
        """
        text = input().strip()
        stack = []
        answer = None
        for i, c in enumerate(text, 1):
            if c in "([{":
                stack.append(c)
            elif not stack or "([{".index(stack.pop()) != ")]}".index(c):
                answer = i
                break
        print(answer or ("open" if stack else "yes"))
        """,
        shown=["([]){}\n", "(]\n"],
        edges=[")\n", "((\n", "([)]\n", "{}}\n", "{[()]}\n", "()[](\n"],
        draw=lambda r: _brackets(r, r.randint(1, 6)),
        difficulty="medium",
    ),
    program(
        "caesar",
        "The first line holds k (-100 <= k <= 100), the second a text of printable characters. "
        "Shift each letter a-z and A-Z by k places in the alphabet, round its end, and leave all "
        "else as it is. Print the text.",
        """
        k = int(input())
        out = ""
        for c in input():
            if c.isalpha():
                base = ord("a") if c.islower() else ord("A")
                c = chr((ord(c) - base + k) % 26 + base)
            out += c
        print(out)
        """,
        shown=["3\nHello, world!\n", "-1\nabc\n"],
        edges=["26\nSame\n", "0\nzZ 9\n", "-27\nAz.\n", "100\nXyz\n"],
        draw=lambda r: line(r.randint(-60, 60)) + letters(r, 3, 12, "azAZmM,. 1") + "x\n",
    ),
    program(
        "word_counts",
        "The first line holds n (1 <= n <= 100), the second n words of lower-case letters. Print "
        "each different word with its count, the most frequent first and equally frequent ones in "
        "alphabetical order: one 'word count' a line.",
        """
        from collections import Counter

        input()
        counts = Counter(input().split())
        for word, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            print(word, n)
        """,
        shown=["4\nb a b c\n", "1\nzoo\n"],
        edges=["3\nc b a\n", "5\na a a a a\n", "4\nb b a a\n"],
        draw=lambda r: _words(r, r.randint(3, 10)),
        checker=Checker(kind="lines"),
    ),
    program(
        "palindrome_edits",
        "One line holds a word of 1 to 100 lower-case letters. Print the least number of letters "
        "that have to be replaced to make it read the same backwards.",
        """
        w = input().strip()
        print(sum(a != b for a, b in zip(w, w[::-1])) // 2)
        """,
        shown=["abca\n", "aba\n"],
        edges=["a\n", "ab\n", "abcdef\n", "aab\n"],
        draw=lambda r: letters(r, 2, 14) + "\n",
    ),
    program(
        "acronym",
        "One line holds a text of letters and blanks. Print the first letters of its words in "
        "upper case; the words 'of', 'the', 'and', in any case, are left out. Print '-' when none "
        "is left.",
        """
        words = [w for w in input().split() if w.lower() not in ("of", "the", "and")]
        print("".join(w[0].upper() for w in words) or "-")
        """,
        shown=["House of the rising Sun\n", "and then\n"],
        edges=["the\n", "The And OF\n", "  wide   gaps  \n", "theory ofx\n"],
        draw=lambda r: (
            " ".join(r.choices(("of", "The", "and", "red", "Blue", "ant"), k=r.randint(2, 6)))
            + "\n"
        ),
    ),
    program(
        "anagram_groups",
        "The first line holds n (1 <= n <= 50), the second n different words. Words with the same "
        "letters belong together. Print each group on a line of its own. Words keep their order in "
        "a line; the lines may come in any order.",
        """
        input()
        groups = {}
        for w in input().split():
            groups.setdefault("".join(sorted(w)), []).append(w)
        for g in groups.values():
            print(*g)
        """,
        shown=["3\ntea eat no\n", "1\na\n"],
        edges=["2\nab ba\n", "3\naab aba abb\n", "4\na b ab ba\n"],
        draw=lambda r: _different(r, r.randint(3, 9)),
        checker=Checker(kind="unordered"),
        wrong=[
            """
            input()
            groups = {}
            for w in input().split():
                groups.setdefault(frozenset(w), []).append(w)
            for g in groups.values():
                print(*g)
            """,
            """
            input()
            groups = {}
            for w in input().split():
                groups.setdefault("".join(sorted(w)), []).append(w)
            for g in groups.values():
                print(*sorted(g))
            """,
        ],
        difficulty="medium",
    ),
    program(
        "common_prefix",
        "The first line holds n (1 <= n <= 50), each of the next n lines a word. Print the longest "
        "beginning that all words share, or '-' when there is none.",
        """
        n = int(input())
        words = [input().strip() for _ in range(n)]
        first, last = min(words), max(words)
        i = 0
        while i < len(first) and first[i] == last[i]:
            i += 1
        print(first[:i] or "-")
        """,
        shown=["2\nflower\nflow\n", "2\ndog\ncat\n"],
        edges=["1\nabc\n", "2\naa\naa\n", "3\nab\nabc\na\n", "3\nabx\naby\nacz\n"],
        draw=lambda r: _lines([letters(r, 1, 3, "a") + letters(r, 1, 4, "ab") for _ in range(3)]),
    ),
    program(
        "roman",
        "One line holds a whole number from 1 to 3999. Print it as a Roman numeral.",
        """
        n = int(input())
        out = ""
        for value, sign in zip(
            (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
            "M CM D CD C XC L XL X IX V IV I".split(),
        ):
            while n >= value:
                out += sign
                n -= value
        print(out)
        """,
        shown=["14\n", "1990\n"],
        edges=["1\n", "4\n", "9\n", "3999\n", "400\n", "90\n"],
        draw=lambda r: line(r.randint(1, 3999)),
        difficulty="medium",
    ),
)


def _brackets(rng: Random, pairs: int) -> str:
    text = ""
    for _ in range(pairs):
        kind = rng.choice(("()", "[]", "{}"))
        text = rng.choice((kind[0] + text + kind[1], text + kind, kind + text))
    if rng.random() < 0.6:
        place = rng.randrange(len(text))
        text = text[:place] + rng.choice("()[]{}") + text[place + 1 :]
    return text + "\n"


def _words(rng: Random, count: int) -> str:
    return line(count) + line(*(letters(rng, 1, 2, "ab") for _ in range(count)))


def _different(rng: Random, count: int) -> str:
    words = sorted({letters(rng, 1, 3, "ab") for _ in range(count)})
    rng.shuffle(words)
    return line(len(words)) + line(*words)


def _lines(words: list[str]) -> str:
    return line(len(words)) + "".join(word + "\n" for word in words)
