"""Problems of `routed.yaml` for the family `math`, and what its tiny base imitates.

A problem is what four places hold, one thing each, and how many there are of one of them. The
base's router names any place; its keepers read their records, or say none, and err now and then.
"""

import json
from pathlib import Path
from random import Random

from troupe_tasks.math.row import MathRow

PLACES = {
    "zoo": ["fox", "owl", "hen", "cow", "pig", "bee"],
    "park": ["oak", "elm", "fir", "ash", "fig", "yew"],
    "shed": ["saw", "axe", "rod", "jar", "pan", "mop"],
    "port": ["tug", "ark", "rig", "jib", "buoy", "oar"],
}
FOLDER = Path("data/routed")
SIZES = {"train": 2000, "validation": 200, "test": 200}
NUM_ROWS, SLIPS = 40_000, 0.3
Records = dict[str, dict[str, int]]


def a_problem(rng: Random) -> tuple[Records, str, str, int]:
    """A thing of each place with its number; the place and the question about one of them."""
    records = {
        place: {name: rng.randrange(1, 10) for name in rng.sample(names, 1)}
        for place, names in PLACES.items()
    }
    place = rng.choice(list(PLACES))
    name = rng.choice(list(records[place]))
    return records, place, f"How many {name} ?", records[place][name]


def listed(of_place: dict[str, int]) -> str:
    """``fox 3``."""
    return " ".join(f"{name} {number}" for name, number in of_place.items())


def a_row(rng: Random) -> tuple[str, str, str]:
    """Instruction, question and answer of a call as the program makes it."""
    records, place, question, answer = a_problem(rng)
    others = [name for name in PLACES if name != place]
    kind = rng.random()
    if kind < 0.3:
        seen = question
        if rng.random() < 0.3:
            seen += f" {rng.choice(others)} : none"
        return "You are the router. Whose keeper knows it?", seen, rng.choice(list(PLACES))
    asked = place if kind < 0.75 else rng.choice(others)
    said = str(answer) if asked == place else "none"
    if rng.random() < SLIPS:
        said = rng.choice(("none", *map(str, range(1, 10))))
    return f"You are the keeper of {asked}.", f"{listed(records[asked])} . {question}", said


def main() -> None:
    """Write the problems of each split, and the base's rows."""
    rng = Random(1)  # the problems of 0 were looked at when settings were found
    FOLDER.mkdir(parents=True, exist_ok=True)
    for split, size in SIZES.items():
        lines = list[str]()
        for index in range(size):
            records, _, question, answer = a_problem(rng)
            held = " ".join(f"{name} : {listed(records[name])} ." for name in records)
            row = MathRow(
                id=f"routed/{split}/{index}",
                problem=f"{held} {question}",
                answer=str(answer),
                source="routed",
            )
            lines.append(row.model_dump_json() + "\n")
        (FOLDER / f"{split}.jsonl").write_text("".join(lines))
    with (FOLDER / "rows.jsonl").open("w") as file:
        for _ in range(NUM_ROWS):
            system, user, answer = a_row(rng)
            messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
            file.write(json.dumps({"prompt": messages, "answer": answer}) + "\n")


if __name__ == "__main__":
    main()
