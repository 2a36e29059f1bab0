"""Latencies of engines that serve a 7B model, from published recordings, for simulations.

Run: ``python -m benchmarks.recorded_latencies CALLS.json... --lengths TRACE.csv``. ``CALLS.json``
are files of ray-project/llmperf-leaderboard (raw_data/individual, Apache-2.0): 150 calls each of
Llama-2-7B at a hosted engine, with the time to the first token and between tokens, all of about 150
tokens. ``TRACE.csv`` is AzureLLMInferenceTrace_conv.csv of Azure/AzurePublicDataset (CC-BY-4.0):
the tokens of answers in conversations, which have the long tail. A latency here is a recorded first
token, and a recorded number of tokens at the recorded pace of the same call. Writes
results/latencies_7b.json, quantiles as shares of the mean, and prints it without them.
"""

import argparse
import csv
import json
import random
import statistics
from pathlib import Path
from typing import Any

from benchmarks.report import percentile

LATENCIES_7B = Path(__file__).parent / "results" / "latencies_7b.json"
DRAWS = 100_000
QUANTILES = 400


def calls_of(paths: list[Path]) -> list[tuple[float, float]]:
    """Seconds to the first token and between tokens of each call that succeeded."""
    rows: list[dict[str, Any]] = [row for path in paths for row in json.loads(path.read_text())]
    return [
        (row["ttft_s"], row["inter_token_latency_s"]) for row in rows if row["error_code"] is None
    ]


def lengths_of(path: Path) -> list[int]:
    """The tokens of each answer of the trace."""
    with path.open() as file:
        return [int(row["GeneratedTokens"]) for row in csv.DictReader(file)]


def main() -> None:
    """Draw, and write quantiles."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recorded_latencies")
    parser.add_argument("calls", type=Path, nargs="+")
    parser.add_argument("--lengths", type=Path, required=True)
    args = parser.parse_args()
    calls, lengths = calls_of(args.calls), lengths_of(args.lengths)
    rng = random.Random(0)
    drawn: list[float] = []
    for _ in range(DRAWS):
        first_s, each_s = rng.choice(calls)
        drawn.append(first_s + each_s * (rng.choice(lengths) - 1))
    drawn.sort()
    mean = statistics.mean(drawn)
    described = {
        "from": "Llama-2-7B at hosted engines (llmperf-leaderboard, "
        f"{', '.join(path.stem for path in args.calls)}: {len(calls)} calls), with the lengths of "
        f"{len(lengths)} answers of AzureLLMInferenceTrace_conv",
        "mean_s": round(mean, 3),
        "p50_s": round(percentile(drawn, 0.5), 3),
        "p99_s": round(percentile(drawn, 0.99), 3),
    }
    at = [drawn[round(i * (DRAWS - 1) / QUANTILES)] / mean for i in range(QUANTILES + 1)]
    text = json.dumps({**described, "shares": [round(share, 4) for share in at]})
    LATENCIES_7B.write_text(text + "\n")
    print(json.dumps(described))


if __name__ == "__main__":
    main()
