from troupe.samplers.parallel import ParallelSampler
from troupe.samplers.tree import TreeSampler


def test_tree_when_choosing_then_highest_reward_and_first_of_equals():
    sampler = TreeSampler(4)
    assert sampler.choose([0.1, 0.9, 0.9, 0.2]) == 1
    assert sampler.choose([0.0, 0.0, 0.0, 0.0]) == 0
    assert (sampler.num_candidates, sampler.num_trajectories) == (4, 1)


def test_parallel_when_asked_then_one_candidate_of_many_trajectories():
    sampler = ParallelSampler(5)
    assert (sampler.num_candidates, sampler.num_trajectories) == (1, 5)
    assert sampler.choose([0.3]) == 0
