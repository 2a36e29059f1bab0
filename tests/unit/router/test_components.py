"""What a failed component's log says to people."""

from pathlib import Path
from typing import Any

import pytest

from troupe.api.router.v1.router_pb2 import ReplicaKind
from troupe.episodes.build import load_parts
from troupe.runtime.launch.launcher import Component
from troupe.runtime.launch.records import plain_lines
from troupe.spec import JobSpec, SpecInvalidError, parse_spec
from troupe.spec.pools import num_replicas
from troupe_router.jobs.checks import check_trainer_gpus, laid_out
from troupe_router.jobs.processes import components, kind_of, policy_of, replica_id
from troupe_router.jobs.queue import Quota, check_quota
from troupe_router.settings import RouterSettings


def test_said_prefers_the_plain_lines_of_a_log() -> None:
    log = '{"event": "x"}\ntroupe rollout: the model cannot be loaded.\n{"event": "closed"}\n'
    assert plain_lines(log) == "troupe rollout: the model cannot be loaded."
    assert plain_lines('{"event": "x"}') == '{"event": "x"}'


def test_policy_of_reads_the_name_that_the_launcher_gave() -> None:
    name = replica_id("demo-1", "rollout-my-policy-3")
    assert policy_of(name, "demo-1") == "my-policy"
    assert policy_of("demo-1-env-0", "demo-1") is None
    assert policy_of(name, "demo-2") is None


def spec(**changes: Any) -> JobSpec:
    body: dict[str, Any] = {
        "name": "two",
        "steps": 1,
        "task": {"name": "plan_path"},
        "workflow": {"order": ["tool", "planner"]},
        "agents": {"tool": {"policy": "small"}, "planner": {"policy": "large_one"}},
        "policies": {"small": {"model": "m"}, "large_one": {"model": "n"}},
    }
    return parse_spec(body | changes)


def trainers(of: JobSpec) -> list[Component]:
    found = components("demo-1", of, RouterSettings(), router="h:1")
    return [each for each in found if each.module == "troupe_trainer"]


def test_components_when_nothing_is_said_then_one_trainer() -> None:
    (one,) = trainers(spec())
    assert one.name == "trainer-0"
    assert one.env["TROUPE_TRAINER_REPLICA_ID"] == "demo-1-trainer-0"
    assert policy_of("demo-1-trainer-0", "demo-1", service="trainer") is None


def test_components_of_one_machine_when_weights_are_handed_over_then_by_a_link_in_the_run() -> None:
    found = components("demo-1", spec(), RouterSettings(launcher="local"), router="h:1")
    defaults = {each.module: each.defaults for each in found}
    store = defaults["troupe_trainer"]["TROUPE_TRAINER_WEIGHTS_URL"]
    assert "TROUPE_TRAINER_WEIGHTS_VIA" not in defaults["troupe_trainer"]
    assert defaults["troupe_rollout"]["TROUPE_ROLLOUT_WEIGHTS_URL"] == store
    staging = defaults["troupe_rollout"]["TROUPE_ROLLOUT_STAGING_DIR"]
    assert Path(store).parent == Path(staging).parent  # a link needs one file system
    assert not defaults["troupe_env"]
    elsewhere = components("demo-1", spec(), RouterSettings(launcher="none"), router="h:1")
    assert not any(each.defaults for each in elsewhere)


def test_components_when_each_policy_has_a_trainer_then_their_names_say_which() -> None:
    found = trainers(spec(trainer={"per_policy": True}))
    assert [each.name for each in found] == ["trainer-large_one-0", "trainer-small-0"]
    ids = [each.env["TROUPE_TRAINER_REPLICA_ID"] for each in found]
    named = [policy_of(each, "demo-1", service="trainer") for each in ids]
    assert named == ["large_one", "small"]


def test_kind_of_reads_the_name_that_the_launcher_gave() -> None:
    document = {
        "name": "demo",
        "steps": 1,
        "task": {"name": "plan_path"},
        "workflow": {"order": ["tool"]},
        "agents": {"tool": {"policy": "p-1"}},
        "policies": {"p-1": {"model": "m"}},
    }
    one = parse_spec(document)
    for name, kind in {
        "demo-1-trainer-0": ReplicaKind.REPLICA_KIND_TRAINER,
        "demo-1-env-12": ReplicaKind.REPLICA_KIND_ENV,
        "demo-1-rollout-p-1-0": ReplicaKind.REPLICA_KIND_ROLLOUT,
        "demo-1-rollout-other-0": None,
        "demo-1-p-1-0": None,
        # A replica of the job demo-1-env-1.
        "demo-1-env-1-trainer-0": None,
        "demo-1-trainer-x": None,
        "demo-10-trainer-0": None,
        "troupe-trainer-0": None,
    }.items():
        assert kind_of(name, "demo-1", one) == kind, name


def test_kind_of_when_each_policy_has_a_trainer_then_names_say_which() -> None:
    both = spec(trainer={"per_policy": True})
    assert kind_of("demo-1-trainer-small-0", "demo-1", both) == ReplicaKind.REPLICA_KIND_TRAINER
    assert kind_of("demo-1-trainer-0", "demo-1", both) is None
    assert kind_of("demo-1-trainer-other-0", "demo-1", both) is None
    assert kind_of("demo-1-trainer-small-0", "demo-1", spec()) is None


def test_components_when_trainers_have_gpus_here_then_each_is_told_its_ranks() -> None:
    settings = RouterSettings(trainer_gpus=8)
    (one,) = (c for c in components("j", spec(), settings, router="h:1") if "trainer" in c.name)
    assert (one.env["TROUPE_TRAINER_RANKS"], dict(one.traits)) == ("8", {})
    asking = spec(trainer={"gpus": 2})
    (one,) = (c for c in components("j", asking, settings, router="h:1") if "trainer" in c.name)
    assert dict(one.traits) == {"gpus": "2"}


def test_check_when_a_job_asks_for_more_gpus_than_a_trainer_has_then_refused_by_name() -> None:
    check_trainer_gpus(load_parts(spec(trainer={"gpus": 8})), 8)
    check_trainer_gpus(load_parts(spec(trainer={"gpus": 16})), 0)
    with pytest.raises(SpecInvalidError, match="a trainer has 8 GPUs here") as refused:
        check_trainer_gpus(load_parts(spec(trainer={"gpus": 16})), 8)
    assert refused.value.pointer == "/trainer/gpus"
    critic = spec(algorithm={"kind": "ippo", "critic": {"model": "m"}})
    with pytest.raises(SpecInvalidError, match="set /trainer/gpus to 1"):
        check_trainer_gpus(load_parts(critic), 8)


def test_laid_out_when_the_machine_has_gpus_then_the_job_gets_replicas_and_ranks() -> None:
    settings = RouterSettings(gpus=8)
    settled = laid_out(load_parts(spec()), settings).spec
    assert {policy.replicas for policy in settled.policies.values()} == {2}
    assert settled.trainer.gpus == 4
    assert settings.most_jobs == 1
    assert laid_out(load_parts(settled), settings).spec == settled


def test_laid_out_when_the_installation_has_limits_then_the_layout_keeps_them() -> None:
    settings = RouterSettings(gpus=8, trainer_gpus=2, max_replicas=3)
    quota = Quota(max_replicas=3, by_owner={"ann": 2})
    parts = laid_out(load_parts(spec()), settings, max_replicas=quota.replicas_of("bob"))
    check_trainer_gpus(parts, 2)
    check_quota(parts.spec, quota, "bob")
    assert (parts.spec.trainer.gpus, num_replicas(parts.spec)) == (2, 3)
    parts = laid_out(load_parts(spec()), settings, max_replicas=quota.replicas_of("ann"))
    check_quota(parts.spec, quota, "ann")
    made = components("j", parts.spec, settings, router="h:1")
    widths = {c.env.get("TROUPE_ROLLOUT_SGLANG_TP_SIZE") for c in made if "rollout" in c.name}
    assert widths != {"1"}  # what no replica may have makes servers wider
    critic = spec(algorithm={"kind": "ippo", "critic": {"model": "m"}})
    check_trainer_gpus(laid_out(load_parts(critic), settings), 2)


def test_laid_out_when_no_gpus_are_set_then_the_job_stays_as_it_is() -> None:
    parts = load_parts(spec())
    assert laid_out(parts, RouterSettings()) is parts


def test_components_when_the_router_is_shown_some_gpus_then_it_gives_those(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,GPU-6")
    found = components("j", spec(), RouterSettings(gpus=3), router="h:1")
    seen = {c.name: c.env["CUDA_VISIBLE_DEVICES"] for c in found}
    assert [seen["trainer-0"], seen["rollout-small-0"], seen["env-0"]] == ["GPU-6", "4", ""]
    assert not any("CUDA_DEVICE_ORDER" in c.env for c in found)
    with pytest.raises(ValueError, match=r"CUDA_VISIBLE_DEVICES shows 3 \('4,5,GPU-6'\)"):
        RouterSettings(gpus=4)


def test_settings_when_another_gives_the_gpus_then_more_than_one_is_refused() -> None:
    assert RouterSettings(gpus=1, launcher="none").most_jobs == 1
    with pytest.raises(ValueError, match="gives no process its GPUs"):
        RouterSettings(gpus=2, launcher="kubernetes")
