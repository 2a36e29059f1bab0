"""Rows of ours in the form of the hub's data sets, so that environments that read those run here.

The environments are the real ones; only what they are asked about is made up, by a seed.
"""

import json
from pathlib import Path
from random import Random

NUM_ROWS = 120
NUM_SUMS = 1000
FIRST = [
    "Ada",
    "Blaise",
    "Carl",
    "Dora",
    "Emil",
    "Frida",
    "Georg",
    "Hanna",
    "Ivan",
    "Jutta",
    "Karl",
    "Lena",
    "Max",
    "Nora",
    "Otto",
    "Paula",
]
LAST = [
    "Abel",
    "Bach",
    "Curie",
    "Dirac",
    "Euler",
    "Fermi",
    "Gauss",
    "Hertz",
    "Ising",
    "Joule",
    "Klein",
    "Lorenz",
    "Moser",
    "Noether",
]
WORDS = [
    "river",
    "stone",
    "green",
    "light",
    "paper",
    "house",
    "quiet",
    "window",
    "morning",
    "letter",
    "garden",
    "bridge",
    "winter",
    "silver",
    "market",
    "yellow",
    "branch",
    "candle",
    "forest",
    "harbor",
    "island",
    "jacket",
    "kettle",
    "ladder",
    "meadow",
    "needle",
    "orange",
]


def sum_of(rng: Random) -> tuple[str, str]:
    """A word problem and its answer."""
    a, b, c = (rng.randint(2, 40) for _ in range(3))
    name = rng.choice(FIRST)
    return f"{name} has {a} apples, buys {b} more and gives {c % a} away. How many?", str(
        a + b - c % a
    )


def sentence(rng: Random) -> str:
    """A sentence of ten to fourteen words."""
    return " ".join(rng.choices(WORDS, k=rng.randint(10, 14))).capitalize()


def rows(rng: Random) -> dict[str, list[dict[str, object]]]:
    """Rows by the id of the data set whose columns they have."""
    sums = [sum_of(rng) for _ in range(NUM_SUMS)]
    names = [f"{first} {last}" for first in FIRST for last in LAST]
    return {
        "openai/gsm8k": [{"question": q, "answer": f"Count.\n#### {a}"} for q, a in sums],
        "chiayewken/competition_math": [
            {"problem": q, "solution": f"It is $\\boxed{{{a}}}$."} for q, a in sums
        ],
        "PrimeIntellect/Reverse-Text-RL": [{"prompt": sentence(rng)} for _ in range(NUM_ROWS)],
        "kalomaze/alphabetic-arxiv-authors-it1": [
            {"names": rng.sample(names, 16)} for _ in range(NUM_ROWS)
        ],
        "agentlans/wikipedia-paragraphs": [
            {"text": ". ".join(sentence(rng) for _ in range(6))} for _ in range(NUM_ROWS)
        ],
    }


def write(folder: Path) -> dict[str, str]:
    """Write the rows and NLTK's word lists below ``folder``; the files by data set."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}
    for name, made in rows(Random(1)).items():
        path = folder / f"{name.replace('/', '--')}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in made), "utf-8")
        files[name] = str(path)
    write_nltk(folder / "home" / "nltk_data")
    return files


def write_nltk(folder: Path) -> None:
    """Word lists in NLTK's form: TextArena's games ask for nouns by them."""
    rng = Random(2)
    made = {"".join(rng.choices("aeiourstlnmdp", k=size)) for size in (4, 5, 5, 6, 8) * 200}
    words = sorted({*made, *WORDS, "crane", "slate", "stone", "plant", "heart"})
    corpus = folder / "corpora" / "words"
    corpus.mkdir(parents=True, exist_ok=True)
    (corpus / "en").write_text("\n".join(words), "utf-8")
    (corpus / "en-basic").write_text("\n".join(words), "utf-8")
    tagger = folder / "taggers" / "averaged_perceptron_tagger_eng"
    tagger.mkdir(parents=True, exist_ok=True)
    tables = {"weights": {}, "tagdict": dict.fromkeys(words, "NN"), "classes": ["NN"]}
    for name, table in tables.items():
        path = tagger / f"averaged_perceptron_tagger_eng.{name}.json"
        path.write_text(json.dumps(table), "utf-8")
