from hypothesis import given
from hypothesis import strategies as st

from troupe.samplers.joint import JointSampler


def test_joint_actions_when_aligned_then_the_kth_candidates_act_together():
    assert JointSampler(3, "aligned", 1.0).joint_actions(2) == [(0, 0), (1, 1), (2, 2)]


def test_joint_actions_when_crossed_then_every_combination_is_there():
    assert JointSampler(2, "cross", 1.0).joint_actions(2) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_tree_size_when_worked_by_hand_then_counts_every_level():
    assert JointSampler(2, "aligned", 1.0).tree_size(2, 3) == 2 + 4 + 8
    assert JointSampler(2, "cross", 1.0).tree_size(2, 2) == 4 + 16


@given(st.integers(2, 4), st.integers(1, 3), st.sampled_from(["aligned", "cross"]))
def test_joint_actions_when_counted_then_each_candidate_is_in_equally_many(size, agents, mode):
    actions = JointSampler(size, mode, 1.0).joint_actions(agents)
    assert len(actions) == JointSampler(size, mode, 1.0).tree_size(agents, 1)
    for place in range(agents):
        counts = {k: sum(a[place] == k for a in actions) for k in range(size)}
        assert len(set(counts.values())) == 1
