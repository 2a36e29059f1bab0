"""Grids and small worlds on standard input."""

from random import Random

from tools.code_bank.draft import line, numbers, program
from troupe_tasks.code.problem import Checker

DRAFTS = (
    program(
        "islands",
        "The first line holds r and c (1 to 20), each of the next r lines c characters, '#' land "
        "and '.' water. Land fields that share a side belong to one island. Print the number of "
        "islands and the size of the largest one (0 when there is none), on one line.",
        """
        r, c = map(int, input().split())
        g = [list(input().strip()) for _ in range(r)]
        count = largest = 0
        for i in range(r):
            for j in range(c):
                if g[i][j] != "#":
                    continue
                count += 1
                size, todo = 0, [(i, j)]
                g[i][j] = "."
                while todo:
                    y, x = todo.pop()
                    size += 1
                    for v, u in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
                        if 0 <= v < r and 0 <= u < c and g[v][u] == "#":
                            g[v][u] = "."
                            todo.append((v, u))
                largest = max(largest, size)
        print(count, largest)
        """,
        shown=["2 3\n##.\n..#\n", "1 1\n.\n"],
        edges=["1 1\n#\n", "3 3\n#.#\n###\n#.#\n", "2 2\n#.\n.#\n", "1 5\n##.##\n"],
        draw=lambda r: _map(r, r.randint(2, 6), r.randint(2, 6), "#."),
        difficulty="medium",
    ),
    program(
        "maze_steps",
        "The first line holds r and c (1 to 20), each of the next r lines c characters, '#' wall "
        "and '.' free. Print the least number of steps (up, down, left, right) from the top left "
        "to the bottom right field, or -1 when there is no way. Both are free.",
        """
        from collections import deque

        r, c = map(int, input().split())
        g = [input().strip() for _ in range(r)]
        far = {(0, 0): 0}
        todo = deque(far)
        while todo:
            y, x = todo.popleft()
            for v, u in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
                if 0 <= v < r and 0 <= u < c and g[v][u] == "." and (v, u) not in far:
                    far[v, u] = far[y, x] + 1
                    todo.append((v, u))
        print(far.get((r - 1, c - 1), -1))
        """,
        shown=["2 2\n.#\n..\n", "2 2\n.#\n#.\n"],
        edges=["1 1\n.\n", "1 4\n....\n", "3 3\n..#\n#..\n##.\n", "3 3\n.#.\n...\n.#.\n"],
        draw=lambda r: _maze(r, r.randint(2, 6), r.randint(2, 6)),
        difficulty="medium",
    ),
    program(
        "turn_grid",
        "The first line holds r and c (1 to 10), each of the next r lines c whole numbers. Print "
        "the grid turned clockwise by 90 degrees.",
        """
        r, c = map(int, input().split())
        g = [input().split() for _ in range(r)]
        for column in zip(*g[::-1]):
            print(*column)
        """,
        shown=["2 2\n1 2\n3 4\n", "1 3\n1 2 3\n"],
        edges=["1 1\n7\n", "3 1\n1\n2\n3\n", "2 3\n1 2 3\n4 5 6\n"],
        draw=lambda r: _numbers(r, r.randint(2, 4), r.randint(2, 4)),
        checker=Checker(kind="lines"),
    ),
    program(
        "spiral",
        "The first line holds r and c (1 to 10), each of the next r lines c whole numbers. Print "
        "all of them on one line, in the order of a clockwise spiral from the top left inwards.",
        """
        r, c = map(int, input().split())
        g = [input().split() for _ in range(r)]
        out = []
        while g:
            out += g.pop(0)
            g = [list(row) for row in zip(*g)][::-1]
        print(*out)
        """,
        shown=["2 2\n1 2\n3 4\n", "1 3\n1 2 3\n"],
        edges=["1 1\n5\n", "3 1\n1\n2\n3\n", "3 3\n1 2 3\n4 5 6\n7 8 9\n"],
        draw=lambda r: _numbers(r, r.randint(2, 4), r.randint(2, 4)),
        difficulty="medium",
    ),
    program(
        "robot",
        "One line holds 1 to 100 commands: F one step forward, L and R a quarter turn left and "
        "right. A robot begins at 0 0 and looks along the positive y axis. Print its x and y at "
        "the end, on one line.",
        """
        x = y = 0
        dx, dy = 0, 1
        for c in input().strip():
            if c == "F":
                x, y = x + dx, y + dy
            elif c == "L":
                dx, dy = -dy, dx
            else:
                dx, dy = dy, -dx
        print(x, y)
        """,
        shown=["FFRF\n", "LF\n"],
        edges=["F\n", "RRF\n", "FRFRFRF\n", "LLLLF\n"],
        draw=lambda r: "".join(r.choices("FFLR", k=r.randint(2, 14))) + "\n",
    ),
    program(
        "life_step",
        "The first line holds r and c (1 to 10), each of the next r lines c characters, '#' alive "
        "and '.' dead. Print the grid after one step of Life: a live field with two or three live "
        "neighbours of eight stays alive, a dead one with three comes alive, all others are dead.",
        """
        r, c = map(int, input().split())
        g = [input().strip() for _ in range(r)]
        for i in range(r):
            row = ""
            for j in range(c):
                n = sum(
                    g[y][x] == "#"
                    for y in range(max(0, i - 1), min(r, i + 2))
                    for x in range(max(0, j - 1), min(c, j + 2))
                    if (y, x) != (i, j)
                )
                row += "#" if n == 3 or (n == 2 and g[i][j] == "#") else "."
            print(row)
        """,
        shown=["3 3\n...\n###\n...\n", "1 2\n##\n"],
        edges=["1 1\n#\n", "2 2\n##\n#.\n", "2 2\n##\n##\n", "3 3\n###\n###\n###\n"],
        draw=lambda r: _map(r, r.randint(3, 5), r.randint(3, 5), "#."),
        checker=Checker(kind="lines"),
        difficulty="medium",
    ),
    program(
        "lost_money",
        "The first line holds n and m (1 <= n <= 20, 0 <= m <= 50): people, and payments. Each of "
        "the next m lines holds a, b, s: person a (from 1) pays s to person b. Print the number of "
        "the person who gains most; of several, the one with the smallest number.",
        """
        n, m = map(int, input().split())
        gain = [0] * (n + 1)
        for _ in range(m):
            a, b, s = map(int, input().split())
            gain[a] -= s
            gain[b] += s
        print(max(range(1, n + 1), key=lambda p: (gain[p], -p)))
        """,
        shown=["2 1\n1 2 5\n", "3 0\n"],
        edges=["1 0\n", "3 2\n1 2 5\n2 3 5\n", "3 2\n3 1 4\n3 2 4\n"],
        draw=lambda r: _payments(r, r.randint(2, 5), r.randint(1, 6)),
    ),
)


def _map(rng: Random, rows: int, columns: int, signs: str) -> str:
    body = "".join("".join(rng.choices(signs, k=columns)) + "\n" for _ in range(rows))
    return line(rows, columns) + body


def _maze(rng: Random, rows: int, columns: int) -> str:
    grid = [[rng.choice("..#") for _ in range(columns)] for _ in range(rows)]
    grid[0][0] = grid[-1][-1] = "."
    return line(rows, columns) + "".join("".join(row) + "\n" for row in grid)


def _numbers(rng: Random, rows: int, columns: int) -> str:
    return line(rows, columns) + "".join(line(*numbers(rng, columns, 0, 9)) for _ in range(rows))


def _payments(rng: Random, people: int, count: int) -> str:
    rows = (
        line(rng.randint(1, people), rng.randint(1, people), rng.randint(1, 9))
        for _ in range(count)
    )
    return line(people, count) + "".join(rows)
