"""What a job of 5 M tokens a second would take of cores, computed from a played one.

A machine whose cores hold all processes and the replicas plays far less. So the floor is: processor
time a token of each process, measured while they played together, times that rate.
"""

from typing import Any

from benchmarks.report import goal

JOB_RATE = 5e6
"""Tokens a second that one job shall be able to sample."""
ONCE = ("valkey", "collector", "router")
"""What a job has once: it can be spread over no further process."""
MOST_PLAY = 8.0


def floor(row: dict[str, Any]) -> dict[str, Any]:
    """The cores of each process at ``JOB_RATE``, and of the busiest part that cannot be spread."""
    us = row["us_per_token"]
    cores = {part: round(JOB_RATE * of / 1e6, 2) for part, of in us.items()}
    busiest = max(ONCE, key=lambda part: us[part])
    return {
        "is_computed": True,
        "tokens_per_s": JOB_RATE,
        "played_tokens_per_s": row["tokens_per_s"],
        "us_per_token": us,
        "cores": cores,
        "cores_of_all": round(sum(cores.values()), 1),
        "busiest_single_part": busiest,
        "its_cores": cores[busiest],
    }


def token_goals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What one core of each process that a job has once takes; how many play processes it needs."""
    lines: list[dict[str, Any]] = []
    for row in rows:
        of = f"with {row['play_processes']} play processes (computed)"
        found = floor(row)
        for part in ONCE:
            cores = found["cores"][part]
            lines.append(goal(f"{part}: cores at 5 M tokens/s, {of}", cores, 1.0, cores < 1.0))
        count = found["cores"]["play"]
        name = f"play: cores at 5 M tokens/s, {of}"
        lines.append(goal(name, count, MOST_PLAY, count <= MOST_PLAY))
    fewest, most = rows[0], rows[-1]
    if most is not fewest:
        ratio = round(most["us_per_token"]["play"] / fewest["us_per_token"]["play"], 2)
        name = "play, processor time a token: "
        name += f"{most['play_processes']} over {fewest['play_processes']}"
        lines.append(goal(name, ratio, 1.2, ratio <= 1.2))
    return lines
