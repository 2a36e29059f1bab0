"""Groups of whole episodes whose candidates all carry the returns of one agent, the lead.

The number of an agent's calls varies from episode to episode, and may be 0; so each group also
holds the lead's return in every episode.
"""

from collections.abc import Sequence

from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.branch import Draw
from troupe.episodes.groups import groups_by_task
from troupe.samplers.led import LedSampler
from troupe.spec.issues import Issue, SpecInvalidError, suggest
from troupe.spec.job import JobSpec


def groups_by_lead(
    ticket: pb.Ticket, task_id: str, draws: Sequence[Draw], sampler: LedSampler
) -> list[pb.Group]:
    """One group per agent over all its turns; rewards are the lead's returns."""
    returns = [0.0] * sampler.num_trajectories
    for draw in draws:
        returns[draw.trajectory] += draw.brought(sampler.lead)
    groups = groups_by_task(ticket, task_id, draws)
    for group in groups:
        group.lead_returns.extend(returns)
        for candidate in group.candidates:
            candidate.reward = returns[candidate.trajectory]
    return groups


def check_lead(spec: JobSpec, sampler: LedSampler) -> None:
    """Raise SpecInvalidError for a lead that is no agent of the job."""
    if sampler.lead not in spec.agents:
        message = f"no agent is called '{sampler.lead}'; {suggest(sampler.lead, spec.agents)}"
        raise SpecInvalidError([Issue("/algorithm/params/lead", message)])
