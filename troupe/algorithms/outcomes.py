"""Group records as advantages see them."""

from troupe.algorithms.contract import CandidateOutcome, GroupOutcome
from troupe.api.records.v1 import records_pb2 as pb


def group_outcome(group: pb.Group) -> GroupOutcome:
    """The part of ``group`` that an advantage may depend on."""
    return GroupOutcome(
        group_id=group.group_id,
        agent=group.agent,
        turn=group.turn,
        candidates=[
            CandidateOutcome(
                index=c.index,
                reward=c.reward,
                num_tokens=len(c.token_ids),
                is_truncated=c.finish_reason == pb.FINISH_REASON_LENGTH,
                trajectory=c.trajectory,
            )
            for c in group.candidates
        ],
    )
