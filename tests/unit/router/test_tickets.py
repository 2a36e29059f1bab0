"""Which tasks a round plays."""

from troupe.api.records.v1 import records_pb2 as pb
from troupe.spec import parse_spec
from troupe_router.jobs.tickets import eval_indices, make_tickets, tasks_after, train_indices


def spec(**more: object):
    document = {
        "name": "t",
        "steps": 4,
        "tasks_per_step": 4,
        "task": {"name": "plan_path"},
        "workflow": {"order": ["tool", "planner"]},
        "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
        "policies": {"p": {"model": "m"}},
    }
    return parse_spec({**document, **more})


def test_train_indices_when_repeated_then_equal_and_distinct_by_step_and_seed() -> None:
    assert train_indices(spec(), 3, None) == train_indices(spec(), 3, None)
    assert train_indices(spec(), 3, None) != train_indices(spec(), 2, None)
    assert train_indices(spec(), 3, None) != train_indices(spec(seed=1), 3, None)


def test_train_indices_of_a_finite_split_see_each_task_once_an_epoch() -> None:
    seen = [i for step in range(5) for i in train_indices(spec(), step, 10)]
    assert sorted(seen[:10]) == list(range(10))
    assert sorted(seen[10:]) == list(range(10))
    assert seen[:10] != seen[10:]


def test_eval_indices_never_pass_the_end_of_the_split() -> None:
    assert eval_indices(spec(eval={"num_tasks": 5}), None) == [0, 1, 2, 3, 4]
    assert eval_indices(spec(eval={"num_tasks": 5}), 3) == [0, 1, 2]


def test_eval_steps_are_first_last_and_every_so_many() -> None:
    assert spec(steps=10).eval_steps() == [0, 10]
    assert spec(steps=10, eval={"every": 4}).eval_steps() == [0, 4, 8, 10]
    assert spec(steps=8, eval={"every": 4}).eval_steps() == [0, 4, 8]
    assert spec(steps=8, eval={"every": 4, "num_tasks": 0}).eval_steps() == []


def test_tickets_carry_the_versions_that_must_answer() -> None:
    kind = pb.ROUND_KIND_TRAIN
    tickets = make_tickets("j", "train-00002", kind, 2, "train", [9, 4], {"p": 2}, 1.0)
    assert [t.ticket_id for t in tickets] == ["j/train-00002/00000", "j/train-00002/00001"]
    assert [t.task_index for t in tickets] == [9, 4]
    assert dict(tickets[1].policy_versions) == {"p": 2}


def test_tickets_when_a_split_is_smaller_than_a_step_then_those_of_one_task_are_numbered() -> None:
    indices = train_indices(spec(), 0, 3)
    kind = pb.ROUND_KIND_TRAIN
    tickets = make_tickets("j", "train-00000", kind, 0, "train", indices, {"p": 0}, 1.0)
    assert [t.task_index for t in tickets] == indices
    assert [t.occurrence for t in tickets] == [0, 0, 0, 1]


def test_tasks_after_a_step_are_the_next_steps_or_the_evaluation_of_the_last_version() -> None:
    job = spec(eval={"num_tasks": 3, "every": 2})

    def after(step: int) -> str:
        tasks = tasks_after(job, step, lambda split: 10)
        return "" if tasks is None else f"{tasks.round_id}:{tasks.split}:{len(tasks.indices)}"

    assert after(0) == "train-00001:train:4"
    assert after(1) == "train-00002:train:4"
    assert after(3) == "eval-00004:test:3"
    assert after(4) == ""
    following = tasks_after(job, 0, lambda split: 10)
    assert following is not None
    assert following.indices == train_indices(job, 1, 10)
