"""Sequences of numbers on standard input."""

from random import Random

from tools.code_bank.draft import counted, line, numbers, program
from troupe_tasks.code.problem import Checker

DRAFTS = (
    program(
        "longest_rise",
        "The first line holds n (1 <= n <= 100), the second n whole numbers. Print the length of "
        "the longest run of neighbours in which each is larger than the one before.",
        """
        n = int(input())
        v = list(map(int, input().split()))
        best = run = 1
        for i in range(1, n):
            run = run + 1 if v[i] > v[i - 1] else 1
            best = max(best, run)
        print(best)
        """,
        shown=["5\n1 2 2 3 4\n", "3\n3 2 1\n"],
        edges=["1\n9\n", "4\n5 5 5 5\n", "5\n1 2 3 4 5\n"],
        draw=lambda r: counted(numbers(r, r.randint(2, 14), 0, 6)),
    ),
    program(
        "best_window",
        "The first line holds n and k (1 <= k <= n <= 100), the second n whole numbers from -1000 "
        "to 1000. Print the largest sum of k neighbours.",
        """
        n, k = map(int, input().split())
        v = list(map(int, input().split()))
        print(max(sum(v[i:i + k]) for i in range(n - k + 1)))
        """,
        shown=["4 2\n1 5 2 3\n", "3 1\n-1 -5 -2\n"],
        edges=["1 1\n-7\n", "3 3\n1 2 3\n", "4 2\n-1 -2 -3 -1\n", "3 2\n0 1 9\n"],
        draw=lambda r: _window(r, r.randint(2, 10)),
    ),
    program(
        "best_subarray",
        "The first line holds n (1 <= n <= 1000), the second n whole numbers from -1000 to 1000. "
        "Print the largest sum of one or more neighbours.",
        """
        n = int(input())
        v = list(map(int, input().split()))
        best = here = v[0]
        for x in v[1:]:
            here = max(x, here + x)
            best = max(best, here)
        print(best)
        """,
        shown=["4\n1 -2 3 4\n", "2\n5 -1\n"],
        edges=["1\n-3\n", "3\n-3 -1 -2\n", "3\n2 -1 2\n", "4\n-1 4 -9 4\n"],
        draw=lambda r: counted(numbers(r, r.randint(2, 14), -9, 9)),
        difficulty="medium",
    ),
    program(
        "meeting_rooms",
        "The first line holds n (1 <= n <= 100). Each of the next n lines holds the start and the "
        "end of a meeting (0 <= start < end <= 1000). A room is free again at the minute in which "
        "a meeting ends. Print the least number of rooms.",
        """
        n = int(input())
        events = []
        for _ in range(n):
            a, b = map(int, input().split())
            events.append((a, 1))
            events.append((b, -1))
        events.sort()
        rooms = best = 0
        for _, change in events:
            rooms += change
            best = max(best, rooms)
        print(best)
        """,
        shown=["2\n1 5\n4 6\n", "2\n1 4\n4 6\n"],
        edges=["1\n0 1\n", "3\n0 9\n0 9\n0 9\n", "3\n1 3\n3 5\n2 4\n", "2\n5 6\n1 2\n"],
        draw=lambda r: _intervals(r, r.randint(2, 7)),
        difficulty="medium",
    ),
    program(
        "merge_intervals",
        "The first line holds n (1 <= n <= 100). Each of the next n lines holds an interval a b "
        "(0 <= a < b <= 1000). Intervals that overlap or touch are one. Print those that are left, "
        "in rising order, one a line.",
        """
        n = int(input())
        spans = sorted(tuple(map(int, input().split())) for _ in range(n))
        merged = [list(spans[0])]
        for a, b in spans[1:]:
            if a <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], b)
            else:
                merged.append([a, b])
        for a, b in merged:
            print(a, b)
        """,
        shown=["2\n1 3\n2 5\n", "2\n7 8\n1 2\n"],
        edges=["2\n1 2\n2 3\n", "2\n1 9\n2 3\n", "1\n0 1\n", "3\n1 3\n5 7\n2 6\n"],
        draw=lambda r: _intervals(r, r.randint(2, 6)),
        checker=Checker(kind="lines"),
        difficulty="medium",
    ),
    program(
        "water_pairs",
        "The first line holds n (2 <= n <= 200), the second n heights of walls (0 to 1000), one "
        "metre apart. Print the most water that two of them hold between them: the distance times "
        "the lower height.",
        """
        n = int(input())
        h = list(map(int, input().split()))
        i, j, best = 0, n - 1, 0
        while i < j:
            best = max(best, (j - i) * min(h[i], h[j]))
            if h[i] < h[j]:
                i += 1
            else:
                j -= 1
        print(best)
        """,
        shown=["4\n1 3 2 4\n", "2\n1 1\n"],
        edges=["2\n0 9\n", "3\n5 1 5\n", "5\n1 8 6 2 7\n", "4\n0 0 0 0\n"],
        draw=lambda r: counted(numbers(r, r.randint(2, 12), 0, 12)),
        difficulty="medium",
    ),
    program(
        "ranks",
        "The first line holds n (1 <= n <= 100), the second n scores from 0 to 100. Print each "
        "one's place, in the order given, on one line: 1 for the highest, equal scores share a "
        "place, and after two seconds comes a fourth.",
        """
        n = int(input())
        v = list(map(int, input().split()))
        print(*[1 + sum(o > x for o in v) for x in v])
        """,
        shown=["4\n90 80 80 70\n", "2\n1 2\n"],
        edges=["1\n0\n", "3\n5 5 5\n", "5\n1 5 5 5 9\n"],
        draw=lambda r: counted(numbers(r, r.randint(2, 9), 0, 8)),
    ),
    program(
        "gaps",
        "The first line holds n (1 <= n <= 100), the second n different whole numbers from 1 to "
        "1000. Print how many whole numbers between the smallest and the largest are missing.",
        """
        n = int(input())
        v = list(map(int, input().split()))
        print(max(v) - min(v) + 1 - n)
        """,
        shown=["3\n5 1 3\n", "2\n7 8\n"],
        edges=["1\n4\n", "2\n1 1000\n", "4\n4 3 2 1\n"],
        draw=lambda r: counted(r.sample(range(1, 40), r.randint(1, 10))),
    ),
    program(
        "coin_ways",
        "The first line holds an amount a (0 <= a <= 500), the second the values of different "
        "coins (each 1 to 100). Print in how many ways the coins pay the amount; the order does "
        "not count, and each coin may be used often.",
        """
        a = int(input())
        coins = list(map(int, input().split()))
        ways = [1] + [0] * a
        for c in coins:
            for s in range(c, a + 1):
                ways[s] += ways[s - c]
        print(ways[a])
        """,
        shown=["5\n1 2 5\n", "3\n2\n"],
        edges=["0\n3 4\n", "7\n7\n", "10\n1\n", "100\n1 5 10 25 50\n"],
        draw=lambda r: line(r.randint(1, 60)) + line(*r.sample(range(1, 13), r.randint(1, 4))),
        difficulty="medium",
    ),
    program(
        "queue_times",
        "The first line holds n and k (1 <= n, k <= 50): customers in a queue, and tills. The "
        "second holds n serving times in minutes (1 to 100). The next customer goes to the first "
        "till that is free. Print after how many minutes the last one is served.",
        """
        import heapq

        n, k = map(int, input().split())
        tills = [0] * k
        for t in map(int, input().split()):
            heapq.heapreplace(tills, tills[0] + t)
        print(max(tills))
        """,
        shown=["3 1\n5 3 4\n", "4 2\n10 2 3 3\n"],
        edges=["1 5\n9\n", "2 2\n7 7\n", "3 2\n1 9 1\n", "5 3\n2 2 2 2 2\n"],
        draw=lambda r: _queue(r, r.randint(2, 9)),
        difficulty="medium",
    ),
)


def _window(rng: Random, count: int) -> str:
    return line(count, rng.randint(1, count)) + line(*numbers(rng, count, -9, 9))


def _intervals(rng: Random, count: int) -> str:
    starts = numbers(rng, count, 0, 20)
    return line(count) + "".join(line(a, a + rng.randint(1, 8)) for a in starts)


def _queue(rng: Random, count: int) -> str:
    return line(count, rng.randint(1, 4)) + line(*numbers(rng, count, 1, 12))
