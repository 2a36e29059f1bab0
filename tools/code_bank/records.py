"""Functions on dictionaries, tuples and nested data."""

from random import Random
from typing import Any

from tools.code_bank.draft import function, letters, numbers
from troupe_tasks.code.problem import Checker

DRAFTS = (
    function(
        "invert",
        "Write invert(table: dict[str, int]) -> dict[int, list[str]]. It maps each value to the "
        "alphabetically sorted list of the keys that have it.",
        """
        def invert(table):
            out = {}
            for k in sorted(table):
                out.setdefault(table[k], []).append(k)
            return out
        """,
        shown=[({"a": 1, "b": 2},), ({"b": 1, "a": 1},)],
        edges=[({},), ({"x": 0},), ({"c": 3, "a": 3, "b": 3},)],
        draw=lambda r: (_table(r, r.randint(2, 6)),),
        wrong=[
            """
            def invert(table):
                out = {}
                for k, v in table.items():
                    out.setdefault(v, []).append(k)
                return out
            """,
            """
            def invert(table):
                return {v: [k] for k, v in sorted(table.items())}
            """,
        ],
    ),
    function(
        "flatten",
        "Write flatten(data: list) -> list. Lists may hold lists, to any depth. It returns all "
        "values that are no lists, in order.",
        """
        def flatten(data):
            out = []
            for item in data:
                if isinstance(item, list):
                    out += flatten(item)
                else:
                    out.append(item)
            return out
        """,
        shown=[([1, [2, 3]],), ([[1], [2]],)],
        edges=[([],), ([[]],), ([[[[1]]], 2],), (["ab", ["c"]],)],
        draw=lambda r: (_nested(r, 3),),
    ),
    function(
        "sum_by_key",
        "Write sum_by_key(pairs: list[tuple[str, int]]) -> list[tuple[str, int]]. It adds up the "
        "numbers of each key and returns (key, sum) with the largest sum first; equal sums in "
        "alphabetical order. Keys whose sum is 0 are left out.",
        """
        def sum_by_key(pairs):
            sums = {}
            for k, v in pairs:
                sums[k] = sums.get(k, 0) + v
            found = [(k, v) for k, v in sums.items() if v != 0]
            return sorted(found, key=lambda pair: (-pair[1], pair[0]))
        """,
        shown=[([("a", 1), ("b", 2), ("a", 3)],), ([("x", 5)],)],
        edges=[([],), ([("a", 1), ("a", -1)],), ([("b", 2), ("a", 2)],), ([("a", -3), ("b", 0)],)],
        draw=lambda r: ([(letters(r, 1, 1), r.randint(-3, 5)) for _ in range(r.randint(2, 7))],),
    ),
    function(
        "path_get",
        "Write path_get(data: dict | list, path: str) -> object. The path holds keys between dots, "
        "such as 'a.0.b': a key of a dictionary, or an index of a list (digits only). It returns "
        "what is found there, or None when a step leads nowhere. An empty path gives the data.",
        """
        def path_get(data, path):
            for key in path.split(".") if path else []:
                if isinstance(data, dict) and key in data:
                    data = data[key]
                elif isinstance(data, list) and key.isdigit() and int(key) < len(data):
                    data = data[int(key)]
                else:
                    return None
            return data
        """,
        shown=[({"a": [1, 2]}, "a.1"), ({"a": 1}, "b")],
        edges=[
            ({"a": 1}, ""),
            ({"a": [1]}, "a.1"),
            ({"a": {"0": 5}}, "a.0"),
            ([[7]], "0.0"),
            ({"a": 1}, "a.b"),
        ],
        draw=lambda r: (
            _tree(r),
            ".".join(r.choices(("a", "b", "0", "1", "2"), k=r.randint(1, 3))),
        ),
        difficulty="medium",
    ),
    function(
        "topological",
        "Write topological(edges: list[tuple[int, int]], n: int) -> list[int]. Tasks are numbered "
        "0 to n - 1; an edge (a, b) says that a comes before b. It returns all tasks in an order "
        "that respects the edges, or [] when there is none. Any right order will do.",
        """
        def topological(edges, n):
            before = [0] * n
            for _, b in edges:
                before[b] += 1
            todo = [t for t in range(n) if before[t] == 0]
            out = []
            while todo:
                t = todo.pop(0)
                out.append(t)
                for a, b in edges:
                    if a == t:
                        before[b] -= 1
                        if before[b] == 0:
                            todo.append(b)
            return out if len(out) == n else []
        """,
        shown=[([(0, 1)], 2), ([(0, 1), (1, 0)], 2)],
        edges=[([], 1), ([], 3), ([(2, 1), (1, 0)], 3), ([(0, 0)], 1), ([(0, 2), (1, 2)], 3)],
        draw=lambda r: _graph(r, r.randint(3, 6)),
        checker=Checker(
            kind="program",
            source=(
                "def check(given, expected, output):\n"
                "    edges, n = given\n"
                "    if expected == []:\n"
                "        return output == []\n"
                "    if not isinstance(output, list) or sorted(output) != list(range(n)):\n"
                "        return False\n"
                "    place = {t: i for i, t in enumerate(output)}\n"
                "    return all(place[a] < place[b] for a, b in edges)\n"
            ),
        ),
        difficulty="medium",
    ),
    function(
        "table_diff",
        "Write table_diff(old: dict[str, int], new: dict[str, int]) -> tuple[set, set, set]. It "
        "returns the keys that were added, that were removed, and that have another value.",
        """
        def table_diff(old, new):
            changed = {k for k in old if k in new and old[k] != new[k]}
            return set(new) - set(old), set(old) - set(new), changed
        """,
        shown=[({"a": 1}, {"a": 2, "b": 3}), ({"a": 1}, {})],
        edges=[({}, {}), ({"a": 1}, {"a": 1}), ({}, {"x": 0}), ({"a": 0}, {"a": 1})],
        draw=lambda r: (_table(r, r.randint(1, 5)), _table(r, r.randint(1, 5))),
    ),
    function(
        "version_order",
        "Write version_order(a: str, b: str) -> int. Versions are numbers between dots. It returns "
        "-1, 0 or 1 when a is older than, equal to or newer than b. Missing numbers at the end "
        "count as 0.",
        """
        def version_order(a, b):
            x, y = ([int(p) for p in v.split(".")] for v in (a, b))
            n = max(len(x), len(y))
            x += [0] * (n - len(x))
            y += [0] * (n - len(y))
            return (x > y) - (x < y)
        """,
        shown=[("1.2", "1.10"), ("2.0", "1.9")],
        edges=[("1", "1.0.0"), ("1.0.1", "1"), ("01.2", "1.2"), ("0", "0.0"), ("10", "9.9")],
        draw=lambda r: (_version(r), _version(r)),
    ),
    function(
        "schedule_gain",
        "Write schedule_gain(jobs: list[tuple[int, int, int]]) -> int. A job is (start, end, gain) "
        "with start < end and gain > 0; a job may begin when another ends. It returns the largest "
        "sum of gains of jobs that do not overlap.",
        """
        def schedule_gain(jobs):
            best = {0: 0}
            done = [(0, 0)]
            for start, end, gain in sorted(jobs, key=lambda job: job[1]):
                before = max(g for e, g in done if e <= start)
                done.append((end, max(done[-1][1], before + gain)))
            return done[-1][1]
        """,
        shown=[([(0, 3, 5), (2, 5, 6), (3, 6, 4)],), ([(1, 2, 7)],)],
        edges=[([],), ([(0, 1, 1), (1, 2, 1)],), ([(0, 9, 5), (1, 2, 3), (3, 4, 3)],)],
        draw=lambda r: ([_job(r) for _ in range(r.randint(2, 6))],),
        difficulty="medium",
    ),
    function(
        "matrix_paths",
        "Write matrix_paths(grid: list[list[int]]) -> int. The grid is a rectangle of at least one "
        "field; 0 is free and 1 is blocked. It returns the number of ways from the top left to the "
        "bottom right that go right or down only. A blocked first or last field gives 0.",
        """
        def matrix_paths(grid):
            ways = [0] * len(grid[0])
            ways[0] = 1
            for row in grid:
                for i, blocked in enumerate(row):
                    if blocked:
                        ways[i] = 0
                    elif i > 0:
                        ways[i] += ways[i - 1]
            return ways[-1]
        """,
        shown=[([[0, 0], [0, 0]],), ([[0, 1], [1, 0]],)],
        edges=[([[0]],), ([[1]],), ([[0, 0, 0]],), ([[0, 0], [0, 1]],), ([[0, 1, 0], [0, 0, 0]],)],
        draw=lambda r: (_walls(r, r.randint(2, 4), r.randint(2, 4)),),
        difficulty="medium",
    ),
)


def _table(rng: Random, count: int) -> dict[str, int]:
    return {letters(rng, 1, 1, "abcdef"): rng.randint(0, 2) for _ in range(count)}


def _nested(rng: Random, depth: int) -> list[Any]:
    return [
        _nested(rng, depth - 1) if depth and rng.random() < 0.4 else rng.randint(0, 9)
        for _ in range(rng.randint(0, 4))
    ]


def _tree(rng: Random) -> dict[str, Any]:
    return {
        "a": numbers(rng, 2, 0, 9),
        "b": {"a": rng.randint(0, 9), "0": [rng.randint(0, 9), {"b": 1}]},
    }


def _graph(rng: Random, count: int) -> tuple[list[tuple[int, int]], int]:
    names = rng.sample(range(count), count)
    edges = [(names[i], names[j]) for i in range(count) for j in range(i) if rng.random() < 0.4]
    if rng.random() < 0.3 and edges:
        first, second = edges[0]
        edges.append((second, first))
    return edges, count


def _version(rng: Random) -> str:
    return ".".join(str(rng.choice((0, 1, 2, 10))) for _ in range(rng.randint(1, 3)))


def _job(rng: Random) -> tuple[int, int, int]:
    start = rng.randint(0, 8)
    return start, start + rng.randint(1, 5), rng.randint(1, 9)


def _walls(rng: Random, rows: int, columns: int) -> list[list[int]]:
    return [[int(rng.random() < 0.2) for _ in range(columns)] for _ in range(rows)]
