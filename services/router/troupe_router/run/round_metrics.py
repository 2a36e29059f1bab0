"""Metrics of a round and of a step. Pure: episodes and timings in, JSON values out."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.busy import busy_seconds
from troupe.runtime.step_report.play import EvalPart, PlayPart, StepPart
from troupe.runtime.step_report.trainer import TrainerPart
from troupe.runtime.streams.round_state import TAIL_CUT
from troupe.tasks.program_ends import OF_OTHERS, OF_TEAM
from troupe_router.run.answers import answer_diversity, strict_agreement
from troupe_router.run.failing_programs import program_failures
from troupe_router.run.tail import tail_of

_LEARN = ("learn", "advantages", "pack", "collate")
_NOT_WORK = ("collect", "wait", "idle", "generate", "env")


def play_metrics(episodes: Sequence[pb.Episode], wall_s: float) -> PlayPart:
    """The metrics of a round's episodes. Dropped ones are counted and never scored.

    Training's rewards are those of its candidates, an evaluation's those of its episodes; of
    candidates where players of 0.1.0, which do not tell them, played some.
    """
    played = [e for e in episodes if not e.dropped_reason]
    rewards: defaultdict[str, list[float]] = defaultdict(list)
    terms: defaultdict[str, dict[str, list[float]]] = defaultdict(dict)
    for episode in played:
        for group in episode.groups:
            sampled = [c for c in group.candidates if not c.is_baseline]
            rewards[group.agent] += [candidate.reward for candidate in sampled]
            _collect_terms(terms[group.agent], sampled)
    everything = [reward for values in rewards.values() for reward in values]
    evaluated = [dict(e.rewards) for e in played if e.groups]
    is_by_episode = bool(evaluated) and all(evaluated)
    if is_by_episode:
        everything = [fmean(by_agent.values()) for by_agent in evaluated]
        rewards = _by_agent(evaluated)
    num_tokens = sum(e.num_tokens for e in played)
    busy = busy_seconds(episodes)
    num_programs, failures = program_failures(episodes)
    tail = tail_of(episodes)
    return PlayPart(
        num_episodes=len(played),
        num_dropped=len(episodes) - len(played),
        success_rate=_mean([_success(e) for e in played]),
        reward_mean=_mean(everything),
        reward_by_agent={agent: _mean(values) for agent, values in sorted(rewards.items())},
        reward_by_term={
            agent: {term: _mean(values) for term, values in sorted(by_term.items())}
            for agent, by_term in sorted(terms.items())
        },
        return_mean=_mean([e.team_return for e in played]),
        turns_mean=_mean([float(e.num_turns) for e in played]),
        num_groups=sum(len(e.groups) for e in played),
        num_redraws=sum(e.num_redraws for e in played),
        num_tokens=num_tokens,
        cached_token_ratio=_cached_ratio(played),
        tokens_per_s=round(num_tokens / busy.generate, 1) if busy.generate > 0 else None,
        answer_diversity=answer_diversity(played),
        strict_agreement=strict_agreement(played),
        num_program_runs=num_programs or None,
        program_failed=_share(failures.total(), num_programs),
        program_failures=_shares(failures, num_programs),
        play_s=round(wall_s, 4),
        num_draws=tail.num_draws if tail else None,
        tail_draws=tail.tail_draws if tail else None,
        tail_s=tail.tail_s if tail else None,
        num_cut=sum(e.dropped_reason.startswith(TAIL_CUT) for e in episodes) or None,
        replica_idle=tail.idle_by_replica if tail else {},
        generate_s=round(busy.generate, 4),
        env_s=round(busy.env, 4),
        is_by_episode=is_by_episode or None,
    )


def train_line(
    step: int,
    play: PlayPart,
    learned: TrainerPart | None,
    wall_s: float,
    *,
    interrupted: bool = False,
    eval_s: float | None = None,
) -> dict[str, Any]:
    """The metrics.jsonl line of a training step. No two parts declare the same name.

    ``eval_s``: how long the evaluation was played that began in the round's tail.

    ``interrupted``: a process of the job died or restarted meanwhile, so ``wall_s`` and
    ``busy_ratio`` hold its absence too. Without a trainer's report it is not known what was learnt.
    """
    phases = step_phases(play, learned.phases if learned else {}, wall_s)
    busy_s = phases["generate"] + phases["learn"]
    whole = StepPart(
        phases=phases,
        wall_s=round(wall_s, 4),
        busy_ratio=round(busy_s / wall_s, 4) if wall_s > 0 else None,
        interrupted=interrupted,
        eval_hidden_s=None
        if eval_s is None
        else round(max(0.0, eval_s - phases.get("evaluation", 0.0)), 4),
    )
    return {
        "kind": "train",
        "step": step,
        **(learned.to_line() if learned else {}),
        **play.to_line(),
        **whole.to_line(),
    }


def step_phases(play: PlayPart, trainer: Mapping[str, float], wall_s: float) -> dict[str, float]:
    """Seconds of a step by phase; they sum to ``wall_s``; env is what generation does not cover."""
    phases = {
        "generate": play.generate_s,
        "env": play.env_s,
        "learn": sum(float(trainer.get(name, 0.0)) for name in _LEARN),
    }
    for name, seconds in trainer.items():
        if name not in _LEARN and name not in _NOT_WORK and name != "other":
            phases[name] = float(seconds)
    phases.setdefault("publish", 0.0)
    phases.setdefault("checkpoint", 0.0)
    phases["other"] = max(0.0, wall_s - sum(phases.values()))
    return {name: round(seconds, 4) for name, seconds in phases.items()}


def eval_line(step: int, play: PlayPart) -> dict[str, Any]:
    """The metrics.jsonl line of an evaluation."""
    part = EvalPart(
        success=play.success_rate,
        num_tasks=play.num_episodes,
        num_dropped=play.num_dropped,
        reward_mean=play.reward_mean,
        reward_by_agent=play.reward_by_agent if play.is_by_episode else {},
        return_mean=play.return_mean,
        turns_mean=play.turns_mean,
        num_program_runs=play.num_program_runs,
        program_failed=play.program_failed,
        is_suspect=play.is_suspect,
        wall_s=play.play_s,
    )
    return {"kind": "eval", "step": step, **part.to_line()}


def _cached_ratio(episodes: Sequence[pb.Episode]) -> float | None:
    """Share of the prompt tokens that engines did not compute, over the groups that report it.

    At most (K - 1) / K where nothing but the K candidates of a group share a prompt.
    """
    reporting = [g for e in episodes for g in e.groups if g.HasField("num_cached_tokens")]
    asked = sum(group.num_prompt_tokens for group in reporting)
    return round(sum(g.num_cached_tokens for g in reporting) / asked, 6) if asked else None


def _by_agent(episodes: Sequence[Mapping[str, float]]) -> defaultdict[str, list[float]]:
    rewards: defaultdict[str, list[float]] = defaultdict(list)
    for by_agent in episodes:
        for agent, reward in by_agent.items():
            rewards[agent].append(reward)
    return rewards


def _collect_terms(terms: dict[str, list[float]], candidates: Sequence[pb.Candidate]) -> None:
    """Add each candidate's team reward and local terms, by name, to ``terms``."""
    for candidate in candidates:
        terms.setdefault("team", []).append(candidate.team_reward)
        for term, value in candidate.local_rewards.items():
            terms.setdefault(term, []).append(value)


def _success(episode: pb.Episode) -> float:
    return episode.success_fraction if not episode.is_success else 1.0


def _share(count: int, num: int) -> float | None:
    return round(count / num, 6) if num else None


def _shares(failures: Mapping[str, int], num: int) -> dict[str, float]:
    """Every kind, so that a curve falls to 0 when a kind is over; nothing without programs."""
    kinds = dict.fromkeys([*OF_TEAM, *OF_OTHERS, *failures]) if num else {}
    return {kind: round(failures.get(kind, 0) / num, 6) for kind in kinds}


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 6) if values else None
