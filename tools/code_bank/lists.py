"""Functions on lists of numbers."""

from tools.code_bank.draft import function, numbers
from troupe_tasks.code.problem import Checker

UNORDERED = Checker(kind="unordered")
FLOAT = Checker(kind="float", tolerance=1e-6)

DRAFTS = (
    function(
        "second_largest",
        "Write second_largest(values: list[int]) -> int | None. It returns the second largest of "
        "the different values, or None when there is none.",
        """
        def second_largest(values):
            found = sorted(set(values))
            return found[-2] if len(found) > 1 else None
        """,
        shown=[([3, 1, 2],), ([5],)],
        edges=[([],), ([4, 4],), ([4, 4, 3],), ([-1, -2],), ([0, 0, 1, 1],)],
        draw=lambda r: (numbers(r, r.randint(1, 7), -4, 4),),
    ),
    function(
        "rotate",
        "Write rotate(values: list, k: int) -> list. It returns a new list with all values moved "
        "k places to the right, round the end; a negative k moves to the left. k may be larger "
        "than the list.",
        """
        def rotate(values, k):
            if not values:
                return []
            k %= len(values)
            return values[len(values) - k:] + values[:len(values) - k]
        """,
        shown=[([1, 2, 3], 1), ([1, 2], 0)],
        edges=[([], 3), ([1, 2, 3], -1), ([1, 2, 3], 7), ([1], 5), ([1, 2, 3, 4], 4)],
        draw=lambda r: (numbers(r, r.randint(1, 6), 0, 9), r.randint(-9, 9)),
    ),
    function(
        "running_max",
        "Write running_max(values: list[int]) -> list[int]. Its i-th result is the largest value "
        "up to and with the i-th.",
        """
        def running_max(values):
            out = []
            for v in values:
                out.append(v if not out or v > out[-1] else out[-1])
            return out
        """,
        shown=[([1, 3, 2],), ([5, 4],)],
        edges=[([],), ([-3, -5, -1],), ([0],), ([2, 2, 2],)],
        draw=lambda r: (numbers(r, r.randint(2, 8), -9, 9),),
    ),
    function(
        "chunks",
        "Write chunks(values: list, size: int) -> list[list]. It cuts the list into parts of the "
        "size; the last part may be shorter. A size below 1 gives an empty list.",
        """
        def chunks(values, size):
            if size < 1:
                return []
            return [values[i:i + size] for i in range(0, len(values), size)]
        """,
        shown=[([1, 2, 3], 2), ([], 3)],
        edges=[([1, 2], 0), ([1, 2], -1), ([1], 1), ([1, 2, 3, 4], 2), ([1, 2], 5)],
        draw=lambda r: (numbers(r, r.randint(1, 8), 0, 9), r.randint(1, 5)),
    ),
    function(
        "median",
        "Write median(values: list[float]) -> float | None. It returns the middle value of the "
        "sorted list, the mean of the two middle ones when their number is even, and None for an "
        "empty list. Errors up to 10^-6 are allowed.",
        """
        def median(values):
            v = sorted(values)
            n = len(v)
            if n == 0:
                return None
            return v[n // 2] if n % 2 else (v[n // 2 - 1] + v[n // 2]) / 2
        """,
        shown=[([3, 1, 2],), ([1, 2],)],
        edges=[([],), ([7],), ([-1, -2, -3, -4],), ([1.5, 2.5, 9.0, 0.0],)],
        draw=lambda r: (numbers(r, r.randint(2, 7), -20, 20),),
        checker=FLOAT,
    ),
    function(
        "merge_sorted",
        "Write merge_sorted(a: list[int], b: list[int]) -> list[int]. Both lists rise, each "
        "without repeats. It returns one rising list of the values of both, without repeats.",
        """
        def merge_sorted(a, b):
            out = []
            i = j = 0
            while i < len(a) or j < len(b):
                if j == len(b) or (i < len(a) and a[i] <= b[j]):
                    v = a[i]
                    i += 1
                else:
                    v = b[j]
                    j += 1
                if not out or out[-1] != v:
                    out.append(v)
            return out
        """,
        shown=[([1, 3], [2]), ([], [4, 5])],
        edges=[([], []), ([1, 2], [1, 2]), ([5], [1]), ([1], [1, 5])],
        draw=lambda r: (sorted(r.sample(range(9), 4)), sorted(r.sample(range(9), 3))),
        difficulty="medium",
    ),
    function(
        "search_place",
        "Write search_place(values: list[int], x: int) -> int. The list never falls. It returns "
        "the first index at which x could be put in so that it still never falls.",
        """
        def search_place(values, x):
            low, high = 0, len(values)
            while low < high:
                mid = (low + high) // 2
                if values[mid] < x:
                    low = mid + 1
                else:
                    high = mid
            return low
        """,
        shown=[([1, 3, 5], 3), ([1, 3, 5], 4)],
        edges=[([], 1), ([1], 0), ([1], 2), ([2, 2, 2], 2), ([1, 2, 2, 3], 2)],
        draw=lambda r: (sorted(numbers(r, r.randint(1, 8), 0, 8)), r.randint(-1, 9)),
    ),
    function(
        "subsets_with_sum",
        "Write subsets_with_sum(values: list[int], total: int) -> int. It returns in how many ways "
        "some of the values (at least one; equal ones at different places are different) add up to "
        "the total. The list has at most 15 values.",
        """
        def subsets_with_sum(values, total):
            ways = 0
            for mask in range(1, 1 << len(values)):
                if sum(v for i, v in enumerate(values) if mask >> i & 1) == total:
                    ways += 1
            return ways
        """,
        shown=[([1, 2, 3], 3), ([5], 4)],
        edges=[([], 0), ([0], 0), ([1, 1, 1], 2), ([2, -2], 0)],
        draw=lambda r: (numbers(r, r.randint(2, 7), -3, 5), r.randint(-2, 8)),
        difficulty="medium",
    ),
    function(
        "missing_numbers",
        "Write missing_numbers(values: list[int], n: int) -> list[int]. It returns the whole "
        "numbers from 1 to n that are not in the list, in any order.",
        """
        def missing_numbers(values, n):
            return [x for x in range(1, n + 1) if x not in values]
        """,
        shown=[([1, 3], 4), ([2], 2)],
        edges=[([], 3), ([1, 2], 2), ([5], 1), ([], 0), ([0, 7, 3], 3)],
        draw=lambda r: (numbers(r, r.randint(1, 5), 0, 7), r.randint(2, 7)),
        checker=UNORDERED,
    ),
    function(
        "transpose_sum",
        "Write transpose_sum(grid: list[list[int]]) -> list[int]. The rows of the grid may have "
        "different lengths. It returns the sum of each column, where a missing value counts 0.",
        """
        def transpose_sum(grid):
            width = max((len(row) for row in grid), default=0)
            return [sum(row[i] for row in grid if i < len(row)) for i in range(width)]
        """,
        shown=[([[1, 2], [3]],), ([[1], [1]],)],
        edges=[([],), ([[]],), ([[], [4, 5]],), ([[1], [2, 3, 4]],)],
        draw=lambda r: ([numbers(r, r.randint(1, 4), -5, 5) for _ in range(r.randint(1, 4))],),
    ),
    function(
        "peaks",
        "Write peaks(values: list[int]) -> list[int]. It returns the indices of all values that "
        "are larger than each neighbour; the first and the last have one neighbour. A list of one "
        "value has one peak.",
        """
        def peaks(values):
            n = len(values)
            return [
                i
                for i, v in enumerate(values)
                if (i == 0 or values[i - 1] < v) and (i == n - 1 or values[i + 1] < v)
            ]
        """,
        shown=[([1, 3, 2],), ([2, 1, 4],)],
        edges=[([],), ([7],), ([1, 1],), ([3, 2, 1],), ([1, 2, 2, 1],)],
        draw=lambda r: (numbers(r, r.randint(2, 8), 0, 4),),
    ),
    function(
        "stock_profit",
        "Write stock_profit(prices: list[int], fee: int) -> int. One share may be bought and later "
        "sold, again and again, one at a time; each sale costs the fee. It returns the largest "
        "profit, at least 0.",
        """
        def stock_profit(prices, fee):
            if not prices:
                return 0
            cash, hold = 0, -prices[0]
            for p in prices[1:]:
                cash = max(cash, hold + p - fee)
                hold = max(hold, cash - p)
            return cash
        """,
        shown=[([1, 5, 2, 6], 1), ([3, 2], 0)],
        edges=[([], 1), ([1, 2], 5), ([1, 3, 1, 3], 0), ([1, 9], 8), ([4], 0)],
        draw=lambda r: (numbers(r, r.randint(3, 8), 1, 12), r.randint(0, 3)),
        difficulty="medium",
    ),
)
