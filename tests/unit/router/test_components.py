"""What a failed component's log says to people."""

from services.router.jobs.processes import policy_of, replica_id
from troupe.launch.records import said


def test_said_prefers_the_plain_lines_of_a_log() -> None:
    log = '{"event": "x"}\ntroupe rollout: the model cannot be loaded.\n{"event": "closed"}\n'
    assert said(log) == "troupe rollout: the model cannot be loaded."
    assert said('{"event": "x"}') == '{"event": "x"}'


def test_policy_of_reads_the_name_that_the_launcher_gave() -> None:
    name = replica_id("demo-1", "rollout-my-policy-3")
    assert policy_of(name, "demo-1") == "my-policy"
    assert policy_of("demo-1-env-0", "demo-1") is None
    assert policy_of(name, "demo-2") is None
