"""Sums as problems of the family `math`, and what a tiny base for `sums.yaml` imitates.

Half of the problems are written in digits: too long for a small model's head, and a program is
only a copy of them. Half are written in words: short, and no demonstration shows a program for
them. Writes train, validation and test problems, and rows of prompts and answers for
`troupe model tiny --rows`. No problem is in two splits, and the rows are of the train problems.
"""

import json
import sys
from pathlib import Path
from random import Random

from troupe.tasks.family import Observation
from troupe_tasks.designed import text
from troupe_tasks.designed.plan import Node, read_plan
from troupe_tasks.designed.state import Output, State
from troupe_tasks.math.row import MathRow
from troupe_tasks.math.state import State as Problem
from troupe_tasks.math.text import REASONER, observation

OPERATORS, MAX_LINES = ("answer", "program", "pick", "vote"), 6
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
NAMES = [
    "Ada",
    "Ben",
    "Cleo",
    "Dan",
    "Eve",
    "Finn",
    "Gwen",
    "Hugo",
    "Ida",
    "Jon",
    "Kim",
    "Leo",
    "Mia",
    "Ned",
    "Ola",
    "Pia",
    "Quin",
    "Ray",
    "Sue",
    "Tom",
]
THINGS = ["nuts", "pens", "caps", "cups", "bags", "keys", "maps", "jars"]
SIZES = {"test": 200, "validation": 200, "train": 1600}
NUM_ROWS = 24_000
SLIPS = {"answer": 0.4, "program": 0.3}
"""Shares of the demonstrated answers and programs with a wrong number in them."""


def in_digits(rng: Random) -> tuple[str, int]:
    """Three or four numbers of one digit, added and subtracted."""
    numbers = [rng.randrange(1, 10) for _ in range(rng.randrange(3, 5))]
    signs = [rng.choice("+-") for _ in numbers[1:]]
    sums = " ".join(f"{sign} {n}" for sign, n in zip(signs, numbers[1:], strict=True))
    signed = [n if sign == "+" else -n for sign, n in zip(signs, numbers[1:], strict=True)]
    return f"Compute {numbers[0]} {sums} .", numbers[0] + sum(signed)


def in_words(rng: Random) -> tuple[str, int]:
    """A number up to ten, and one that comes or goes."""
    a, b, comes = rng.randrange(11), rng.randrange(11), rng.random() < 0.5
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    told = f"{name} has {WORDS[a]} {thing} and {'gets' if comes else 'loses'} {WORDS[b]} ."
    return f"{told} How many are left ?", a + b if comes else a - b


def problems(rng: Random) -> dict[str, list[MathRow]]:
    """Rows of each split; the kinds take turns, and no held-out problem is in another split."""
    rows, held_out = dict[str, list[MathRow]](), set[str]()
    for split, size in SIZES.items():
        rows[split] = []
        while len(rows[split]) < size:
            problem, answer = (in_digits, in_words)[len(rows[split]) % 2](rng)
            if problem in held_out:
                continue
            held_out |= {problem} if split != "train" else set()
            name = f"sums/{split}/{len(rows[split])}"
            rows[split].append(
                MathRow(id=name, problem=problem, answer=str(answer), source="designed_sums")
            )
    return rows


def a_plan(rng: Random) -> str:
    """Of a broad distribution over the plans that are legal: one, or a few that are compared."""
    ends = rng.choice(("", "", "vote", "pick"))
    kinds = rng.choice((("answer",), ("program",), ("answer", "program")))
    number = rng.randrange(2, MAX_LINES) if ends else 1
    names = "abcdef"[:number]
    lines = [f"{name} = {rng.choice(kinds)}()" for name in names]
    if ends:
        lines.append(f"{'abcdef'[number]} = {ends}({', '.join(names)})")
    return "\n".join(lines)


def program_of(problem: str, rng: Random) -> str:
    """The sum as it stands, printed; now and then with a wrong number."""
    words = problem.split()[1:-1]
    if rng.random() < SLIPS["program"]:
        words[2 * rng.randrange(len(words) // 2 + 1)] = str(rng.randrange(1, 10))
    return f"```python\nprint( {' '.join(words)} )\n```"


def shown(row: MathRow, rng: Random) -> tuple[Observation, str]:
    """A prompt of one of the team's acts, and what its demonstrator writes."""
    question = observation(Problem(row), REASONER)
    operator = rng.choice(("plan", "pick", *["answer"] * 5, *["program"] * 5))
    if operator == "program" and not row.problem.startswith("Compute"):
        operator = "answer"
    if operator == "plan":
        return text.design(question, OPERATORS, MAX_LINES), a_plan(rng)
    slips = operator == "answer" and rng.random() < SLIPS["answer"]
    boxed = f"\\boxed{{{int(row.answer) + (rng.randrange(-4, 5) if slips else 0)}}}"
    if operator != "pick":
        said = boxed if operator == "answer" else program_of(row.problem, rng)
        return text.ask(question, State(b"{}"), Node("a", operator)), said
    plan = a_plan(rng)
    while "pick" not in plan:
        plan = a_plan(rng)
    *above, node = read_plan(plan, operators=OPERATORS, max_lines=MAX_LINES).nodes
    other = f"\\boxed{{{int(row.answer) + rng.randrange(-3, 4)}}}"
    outputs = {line.name: Output(rng.choice((boxed, other))) for line in above}
    return text.ask(
        question, State(b"{}", outputs=outputs), node
    ), f"PICK: {rng.choice(node.inputs)}"


def main(folder: Path) -> None:
    """Write the problems of each split, and the base's rows."""
    rng = Random(1)  # the problems of 0 were looked at when the example's settings were found
    rows = problems(rng)
    folder.mkdir(parents=True, exist_ok=True)
    for split, of_split in rows.items():
        lines = [row.model_dump_json() for row in of_split]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    with (folder / "rows.jsonl").open("w") as file:
        for _ in range(NUM_ROWS):
            prompt, answer = shown(rng.choice(rows["train"]), rng)
            messages = [{"role": m.role, "content": m.text} for m in prompt]
            file.write(json.dumps({"prompt": messages, "answer": answer}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "data/designed_sums"))
