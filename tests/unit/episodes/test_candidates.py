"""A candidate on its wires: what was drawn arrives as it was, and its record becomes a sample."""

from hypothesis import given
from hypothesis import strategies as st

from troupe.api.records.v1 import records_pb2 as records
from troupe.api.rollout.v1 import rollout_pb2 as rollout
from troupe.candidates import (
    Candidate,
    Generation,
    generation_from_proto,
    generation_to_proto,
    group_outcome,
)
from troupe.ids import prompt_digest

token_ids = st.lists(st.integers(0, 2**32 - 1), max_size=5)
spans = st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, 9)), max_size=3)
candidates = st.builds(
    Candidate,
    token_ids,
    st.lists(st.floats(-50.0, 0.0, width=32), max_size=5),
    st.text(),
    st.sampled_from(["stop", "length"]),
    spans,
)


@given(
    st.lists(candidates, max_size=4),
    token_ids,
    st.integers(0, 2**40),
    st.floats(0, 1e6),
    st.none() | st.integers(0, 10**6),
)
def test_generation_when_sent_then_comes_back_equal(drawn, prompt, version, engine_s, cached):
    sent = Generation(prompt, prompt_digest(prompt), drawn, version, engine_s, cached)
    message = rollout.GenerateResponse.FromString(generation_to_proto(sent).SerializeToString())
    assert generation_from_proto(message) == sent


def test_tokens_when_a_server_counts_them_then_its_counts_hold():
    shown = Generation([1, 2, 3], "d", [Candidate([4, 5], [-1.0, -1.0], "x", "stop")] * 2, 0, 0.0)
    assert (shown.num_prompt_tokens, shown.num_sampled_tokens) == (3, 4)
    text = Generation((), "d", [Candidate((), (), "x", "stop")], 0, 0.0, num_counted_tokens=(7, 9))
    assert (text.num_prompt_tokens, text.num_sampled_tokens) == (7, 9)


def test_sample_when_made_from_a_record_then_holds_what_advantages_and_the_loss_read():
    record = records.Group(group_id="g", agent="a", turn=2, node="n")
    record.candidates.add(
        index=3,
        token_ids=[5, 6],
        rollout_logprobs=[-0.5, -0.25],
        finish_reason=records.FINISH_REASON_LENGTH,
        reward=1.25,
        trajectory=4,
        turn=2,
        is_baseline=True,
    )
    outcome = group_outcome(record)
    assert (outcome.group_id, outcome.agent, outcome.turn, outcome.node) == ("g", "a", 2, "n")
    [sample] = outcome.candidates
    assert (sample.index, sample.reward, sample.num_tokens) == (3, 1.25, 2)
    assert (sample.is_truncated, sample.is_baseline) == (True, True)
    assert (sample.trajectory, sample.turn) == (4, 2)
    assert list(sample.token_ids) == [5, 6]
    assert list(sample.rollout_logprobs) == [-0.5, -0.25]
