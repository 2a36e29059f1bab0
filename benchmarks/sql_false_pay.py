"""How many wrong queries the database task pays: its chosen databases beside random ones.

Run: ``python -m benchmarks.sql_false_pay [--mutants 2000] [--quick]``. Wrong queries are the
templates' own, all single changes of the gold query and double changes (which chose no database).
A query that no one of 80 further databases tells from the gold query counts as right in other
words and is left out; the raw share with those is printed too. The last line is one JSON object.
"""

import argparse
import json
import time
from random import Random

from benchmarks.report import commit, goal, machine
from troupe_tasks.sql.compare import is_ordered
from troupe_tasks.sql.contents import drawn_database
from troupe_tasks.sql.domains import DOMAINS
from troupe_tasks.sql.guard import run_query
from troupe_tasks.sql.mutants import mutants
from troupe_tasks.sql.questions import TEMPLATES
from troupe_tasks.sql.suite import (
    Witness,
    columns_of,
    drawn_question,
    instance,
    told_apart,
    wrong_queries,
)

NUM_FURTHER = 80
GOAL = 0.02
RANDOM_COUNTS = (1, 2, 3, 5, 6, 8, 12)


class Count:
    """Wrong queries of one kind: all, those that can be told from gold, and the paid ones."""

    def __init__(self) -> None:
        self.raw = self.wrong = self.paid_raw = self.paid = 0
        self.random = dict.fromkeys(RANDOM_COUNTS, 0)
        self.examples: list[str] = []


def judge(domain: str, template: str, seed: int, rng: Random, counts: dict[str, Count]) -> None:
    """Draw wrong queries of one instance, and count who pays for them."""
    words, forms, question = drawn_question(domain, template, seed)
    single = wrong_queries(words, forms, question)
    double = [m for sql in rng.sample(single, 4) for m in mutants(sql, columns_of(words))]
    kinds = {"single": rng.sample(single, min(10, len(single)))}
    kinds["double"] = rng.sample(double, min(6, len(double)))
    ordered, gold = is_ordered(question.gold), question.gold
    further = [
        Witness(database, run_query(database, gold).rows)
        for number in range(NUM_FURTHER)
        for database in [drawn_database(words, forms, question, Random(f"further/{seed}/{number}"))]
    ]
    found = instance(domain, template, seed)
    for kind, queries in kinds.items():
        first: dict[int, int] = {}
        for number, witness in enumerate(further):
            for at in told_apart(witness, queries, ordered=ordered):
                first.setdefault(at, number)
        chosen = {at for w in found.witnesses for at in told_apart(w, queries, ordered=ordered)}
        count = counts[kind]
        for at, sql in enumerate(queries):
            is_wrong = at in first or at in chosen
            count.raw += 1
            count.paid_raw += at not in chosen
            count.wrong += is_wrong
            for num in RANDOM_COUNTS:
                count.random[num] += is_wrong and first.get(at, NUM_FURTHER) >= num
            if is_wrong and at not in chosen:
                count.paid += 1
                count.examples.append(f"{template}: {sql}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=2000, help="wrong queries to judge")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="200 wrong queries")
    options = parser.parse_args()
    wanted = 200 if options.quick else options.mutants
    rng, begun = Random(f"sql_false_pay/{options.seed}"), time.process_time()
    counts = {"single": Count(), "double": Count()}
    while sum(count.wrong for count in counts.values()) < wanted:
        domain, template = rng.choice(list(DOMAINS)), rng.choice(list(TEMPLATES))
        judge(domain, template, rng.getrandbits(32), rng, counts)
    for kind, count in counts.items():
        print(f"{kind}: {count.raw} queries, {count.wrong} of them wrong somewhere")
        for num in RANDOM_COUNTS:
            print(f"  paid on {num:2d} random databases: {count.random[num] / count.wrong:6.1%}")
        print(f"  paid on the six chosen ones: {count.paid / count.wrong:.2%} ({count.paid})")
        print(f"  with those that are right in other words: {count.paid_raw / count.raw:.2%}")
        print(*(f"    {example}" for example in count.examples[:12]), sep="\n")
    num_wrong = sum(count.wrong for count in counts.values())
    share = sum(count.paid for count in counts.values()) / num_wrong
    report = {
        "benchmark": "sql_false_pay",
        "commit": commit(),
        "machine": machine(),
        "n": num_wrong,
        "cpu_s": round(time.process_time() - begun, 1),
        "random_6": sum(count.random[6] for count in counts.values()) / num_wrong,
        "goals": [goal("wrong queries that are paid", share, GOAL, share < GOAL)],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
