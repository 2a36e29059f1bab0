"""What a round's answers have in common: diversity over prompts, agreement of two judges. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from troupe.api.records.v1 import records_pb2 as pb
from troupe.rewards.reward import STRICT


def normal(text: str) -> str:
    """``text`` without what makes equal answers look different: case and white space."""
    return " ".join(text.split()).casefold()


def answer_diversity(episodes: Sequence[pb.Episode]) -> dict[str, float]:
    """By agent, the chance that its answers to two different prompts differ, from 0 to 1.

    0: one answer, whatever is asked. Answers to one prompt may be equal, as those of a policy that
    has learnt are; they are not compared. An agent with a single prompt is left out.
    Source: Simpson, Nature 163 (1949), over pairs of different prompts.
    """
    by_agent: defaultdict[str, defaultdict[str, Counter[str]]] = defaultdict(
        lambda: defaultdict(Counter)
    )
    for agent, candidate in sampled(episodes):
        by_agent[agent][candidate.prompt_digest][normal(candidate.text)] += 1
    return {
        agent: round(differing, 6)
        for agent, prompts in sorted(by_agent.items())
        if (differing := _differing(list(prompts.values()))) is not None
    }


def _differing(prompts: Sequence[Counter[str]]) -> float | None:
    """Chance that candidates of two prompts differ, each prompt weighing the same."""
    if len(prompts) < 2:
        return None
    whole: defaultdict[str, float] = defaultdict(float)
    within = 0.0
    for answers in prompts:
        total = answers.total()
        for answer, count in answers.items():
            whole[answer] += count / total
            within += (count / total) ** 2
    same = sum(share**2 for share in whole.values()) - within
    return 1.0 - same / (len(prompts) * (len(prompts) - 1))


def strict_agreement(episodes: Sequence[pb.Episode]) -> float | None:
    """Share of the pairs of a group that the strict judge orders as the reward does.

    Pairs of equal reward do not count; those that the strict judge calls equal count half. None
    without a pair.
    """
    total, agreed = 0, 0.0
    for episode in episodes:
        for group in episode.groups:
            judged = [c for c in group.candidates if STRICT in c.local_rewards]
            for a, b in combinations(judged, 2):
                if a.reward != b.reward:
                    total += 1
                    strict = a.local_rewards[STRICT] - b.local_rewards[STRICT]
                    agreed += 0.5 if strict == 0 else float((strict > 0) == (a.reward > b.reward))
    return round(agreed / total, 6) if total else None


def sampled(episodes: Sequence[pb.Episode]) -> Iterator[tuple[str, pb.Candidate]]:
    """Agent and candidate of everything that was drawn to be trained."""
    for episode in episodes:
        for group in episode.groups:
            for candidate in group.candidates:
                if not candidate.is_baseline:
                    yield group.agent, candidate


def shown_episodes(
    episodes: Sequence[pb.Episode], agent: str = "", *, most: int = 5
) -> list[dict[str, object]]:
    """The episodes that show a suspicion best: unsolved ones, best paid first, with one answer.

    With ``agent``: those in which it gives its commonest answer.
    """
    played = [episode for episode in episodes if not episode.dropped_reason]
    commonest = Counter(normal(c.text) for a, c in sampled(played) if a == agent)
    wanted = commonest.most_common(1)[0][0] if commonest else None
    rows: list[tuple[Mapping[str, object], tuple[bool, float]]] = []
    for episode in played:
        answers = [
            (name, c)
            for name, c in sampled([episode])
            if not agent or (name == agent and normal(c.text) == wanted)
        ]
        if not answers:
            continue
        name, best = max(answers, key=lambda pair: pair[1].reward)
        row = {
            "episode_id": episode.episode_id,
            "task_id": episode.task_id,
            "agent": name,
            "answer": best.text[:300],
            "reward": round(best.reward, 6),
            "is_success": episode.is_success,
        }
        rows.append((row, (episode.is_success, -best.reward)))
    rows.sort(key=lambda entry: entry[1])
    return [dict(row) for row, _ in rows[:most]]
