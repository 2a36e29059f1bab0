"""Trouble that a cluster can give a job, and the condition that each must end in.

Run on the fake API server and on the real one; ``cluster`` is a fixture of whoever imports this.
"""

import asyncio
from dataclasses import replace

import pytest
from kube_world import TEMPLATES, ClusterWorld, replica, until

from troupe.runtime.launch.launcher import Component
from troupe_router.cluster import names
from troupe_router.cluster.api import CONFIG_MAP, JOB, POD, STATEFUL_SET, StaleError
from troupe_router.cluster.templates import TEMPLATES_KEY


def _waits(reason: str, message: str) -> dict:
    state = {"waiting": {"reason": reason, "message": message}}
    container = {"name": "rollout", "image": "i", "imageID": "", "ready": False}
    return {"containerStatuses": [{**container, "restartCount": 0, "state": state}]}


def _unscheduled(message: str) -> dict:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {"conditions": [{**condition, "message": message}]}


@pytest.mark.parametrize(
    ("status", "condition", "words"),
    [
        (
            _waits("ImagePullBackOff", 'Back-off pulling image "registry.invalid/x:1"'),
            "ImagePullFailed",
            "imagePullSecrets",
        ),
        (
            _waits("ErrImagePull", "pull access denied"),
            "ImagePullFailed",
            "pull access denied",
        ),
        (
            _waits("CreateContainerConfigError", 'secret "troupe-redis" not found'),
            "SecretMissing",
            'secret "troupe-redis" not found',
        ),
        (
            _unscheduled("0/3 nodes are available: 3 Insufficient nvidia.com/gpu."),
            "Unschedulable",
            "Insufficient nvidia.com/gpu",
        ),
        (
            _unscheduled('persistentvolumeclaim "runs" not found'),
            "VolumeMissing",
            "persistence",
        ),
        (
            _unscheduled("0/1 nodes: pod has unbound immediate PersistentVolumeClaims."),
            "VolumeUnbound",
            "storageClassName",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isalnum() else "",
)
async def test_pod_when_it_cannot_run_then_the_status_names_the_condition_and_recovers(
    cluster: ClusterWorld, status: dict, condition: str, words: str
) -> None:
    cluster.break_pods("rollout-a", status)
    launcher, wanted = cluster.launcher(), [replica("rollout-a-0")]
    found = await until(launcher, wanted, lambda s: s["rollout-a-0"].condition == condition)
    assert found["rollout-a-0"].state == "waiting"
    assert words in found["rollout-a-0"].detail
    cluster.mend_pods()
    pod = (await cluster.pods())[0]
    await cluster.api.delete(POD, pod["metadata"]["name"], grace_s=0)
    await until(launcher, wanted, lambda s: s["rollout-a-0"].state == "running")


async def test_pod_when_its_image_name_is_no_name_then_has_failed(cluster: ClusterWorld) -> None:
    broken = _waits("InvalidImageName", 'couldn\'t parse image reference "A B"')
    cluster.break_pods("rollout-a", broken)
    found = await until(
        cluster.launcher(), [replica("rollout-a-0")], lambda s: s["rollout-a-0"].state == "failed"
    )
    assert found["rollout-a-0"].condition == "InvalidImageName"


async def test_job_when_killed_for_memory_then_says_so_and_is_started_again(
    cluster: ClusterWorld,
) -> None:
    launcher, wanted = cluster.launcher(), [replica("rollout-a-0")]
    await until(launcher, wanted, lambda s: s["rollout-a-0"].state == "running")
    await cluster.end("rollout-a", 137, reason="OOMKilled")
    found = await until(launcher, wanted, lambda s: s["rollout-a-0"].state == "restarting")
    assert found["rollout-a-0"].condition == "OutOfMemory"
    assert "limits.memory" in found["rollout-a-0"].detail
    await cluster.restart("rollout-a")
    again = await until(launcher, wanted, lambda s: s["rollout-a-0"].state == "running")
    assert again["rollout-a-0"].restarts == 1


async def test_templates_when_missing_then_every_component_has_failed_in_words(
    cluster: ClusterWorld,
) -> None:
    await cluster.api.delete(CONFIG_MAP, "t-launcher")
    found = await cluster.launcher().reconcile("job", [replica("trainer-0"), replica("env-0")])
    assert {status.condition for status in found} == {"TemplatesMissing"}
    assert {status.state for status in found} == {"failed"}


async def test_model_when_no_pool_takes_it_then_says_which_models_the_pools_take(
    cluster: ClusterWorld,
) -> None:
    [found] = await cluster.launcher().reconcile("job", [replica("rollout-a-0", model="Qwen/X")])
    assert (found.state, found.condition) == ("failed", "InvalidTemplate")
    assert "*8B*; models/*" in found.detail


async def test_program_when_in_an_image_then_the_pod_runs_it_and_others_are_refused_in_words(
    cluster: ClusterWorld,
) -> None:
    plain = 'spec: {containers: [{name: env, image: "troupe/env:1"}]}'
    both = plain.replace("}]}", "}, {name: program, image: x, command: [python, host.py]}]}")
    labels = f"labels: {{{names.COMPONENT}: env}}"
    listed = f'{labels}, annotations: {{{names.PROGRAM_REPOSITORIES}: "ghcr.io/acme/team"}}'
    text = TEMPLATES.replace(plain, both).replace(labels, listed, 1)
    await cluster.api.patch(CONFIG_MAP, "t-launcher", {"data": {TEMPLATES_KEY: text}})

    def env_of(image: str) -> Component:
        traits = {"program_image": image, "program_python": "/opt/python"}
        return replace(replica("env-0"), traits=traits)

    [refused] = await cluster.launcher().reconcile("other", [env_of("ghcr.io/acme/teams:1")])
    assert (refused.state, refused.condition) == ("failed", "InvalidTemplate")
    assert "ghcr.io/acme/team." in refused.detail
    allowed = env_of("ghcr.io/acme/team:2")
    await until(cluster.launcher(), [allowed], lambda s: s["env-0"].state == "running")
    found = await cluster.api.get(STATEFUL_SET, "t-job-env")
    program = found["spec"]["template"]["spec"]["containers"][1]
    assert program["image"] == "ghcr.io/acme/team:2"
    assert program["command"] == ["/opt/python", "host.py"]


async def test_pool_when_its_pattern_fits_then_gives_the_image(cluster: ClusterWorld) -> None:
    launcher = cluster.launcher()
    wanted = [replica("rollout-a-0"), replica("rollout-b-0", model="Qwen/Qwen3-8B")]
    await until(launcher, wanted, lambda s: all(x.state == "running" for x in s.values()))
    images = [
        (await cluster.pod(w))["spec"]["containers"][0]["image"] for w in ("rollout-a", "rollout-b")
    ]
    assert images == ["troupe/rollout:1", "troupe/rollout-sglang:1"]


async def test_variables_when_the_template_sets_them_then_are_the_templates(
    cluster: ClusterWorld,
) -> None:
    wanted = [replica("trainer-0"), replica("rollout-a-0"), replica("rollout-a-1")]
    await until(cluster.launcher(), wanted, lambda s: all(x.state == "running" for x in s.values()))
    [job] = (await cluster.api.list(JOB))[0]
    variables = {v["name"]: v.get("value") for v in _container(job)["env"]}
    assert variables["TROUPE_TRAINER_ROUTER"] == "t-router:8481"
    assert variables["TROUPE_TRAINER_REPLICA_ID"] == "job-trainer-$(TROUPE_ORDINAL)"
    [made] = (await cluster.api.list(STATEFUL_SET))[0]
    assert made["spec"]["replicas"] == 2
    rollout = {v["name"]: v.get("value") for v in _container(made)["env"]}
    assert rollout["TROUPE_ROLLOUT_REPLICA_ID"] == "job-rollout-a-$(TROUPE_ORDINAL)"
    assert _container(made)["args"] == ["troupe_rollout"]


async def test_templates_when_the_chart_is_upgraded_then_a_running_job_keeps_its_own(
    cluster: ClusterWorld,
) -> None:
    wanted = [replica("trainer-0"), replica("env-0")]
    await until(cluster.launcher(), wanted, lambda s: all(x.state == "running" for x in s.values()))
    before = {pod["metadata"]["uid"] for pod in await cluster.pods()}
    newer = TEMPLATES.replace("troupe/trainer:1", "troupe/trainer:2")
    await cluster.api.patch(CONFIG_MAP, "t-launcher", {"data": {TEMPLATES_KEY: newer}})
    launcher = cluster.launcher()
    for _ in range(5):
        await until(launcher, wanted, lambda s: all(x.state == "running" for x in s.values()))
    assert {pod["metadata"]["uid"] for pod in await cluster.pods()} == before
    await launcher.stop("job", grace_s=1)
    await until(launcher, wanted, lambda s: all(x.state == "running" for x in s.values()))
    [job] = (await cluster.api.list(JOB))[0]
    assert _container(job)["image"] == "troupe/trainer:2"


async def test_two_launchers_when_both_reconcile_at_once_then_make_everything_once(
    cluster: ClusterWorld,
) -> None:
    one, other = cluster.launcher(), cluster.launcher()
    wanted = [replica("trainer-0"), replica("rollout-a-0"), replica("env-0")]
    await asyncio.gather(*(x.reconcile("job", wanted) for x in (one, other) for _ in range(3)))
    await until(one, wanted, lambda s: all(x.state == "running" for x in s.values()))
    await until(other, wanted, lambda s: all(x.state == "running" for x in s.values()))
    assert len((await cluster.api.list(JOB))[0]) == 1
    assert len((await cluster.api.list(STATEFUL_SET))[0]) == 2
    assert len(await cluster.pods()) == 3


async def test_stop_when_called_then_nothing_of_the_job_is_left(cluster: ClusterWorld) -> None:
    launcher, wanted = cluster.launcher(), [replica("trainer-0"), replica("env-0")]
    await until(launcher, wanted, lambda s: all(x.state == "running" for x in s.values()))
    await launcher.stop("job", grace_s=2)
    assert await cluster.left_over() == []


async def test_anchor_when_deleted_by_hand_then_the_garbage_collector_takes_the_rest(
    cluster: ClusterWorld,
) -> None:
    launcher, wanted = cluster.launcher(), [replica("trainer-0"), replica("env-0")]
    await until(launcher, wanted, lambda s: all(x.state == "running" for x in s.values()))
    await launcher.close()
    assert await cluster.api.delete(CONFIG_MAP, "t-job")
    async with asyncio.timeout(60):
        while await cluster.left_over():  # noqa: ASYNC110 (only the API knows)
            await asyncio.sleep(0.05)


async def test_names_when_a_job_id_is_long_or_odd_then_objects_have_legal_ones(
    cluster: ClusterWorld,
) -> None:
    owner = "a_very_long_job_name_" + "x" * 38 + "-1"
    launcher, wanted = cluster.launcher(), [replica("rollout-policy_with_a_long_name-0")]
    await until(launcher, wanted, lambda s: s[wanted[0].name].state == "running", owner=owner)
    [made] = (await cluster.api.list(STATEFUL_SET))[0]
    assert len(made["metadata"]["name"]) <= 48
    await launcher.stop(owner, grace_s=1)
    assert await cluster.left_over() == []


async def test_stale_write_when_made_then_is_refused(cluster: ClusterWorld) -> None:
    found = await cluster.api.get(CONFIG_MAP, "t-launcher")
    note = {"metadata": {"annotations": {"seen": "1"}}}
    await cluster.api.patch(CONFIG_MAP, "t-launcher", note)
    with pytest.raises(StaleError):
        await cluster.api.replace(CONFIG_MAP, found)


async def test_foreign_object_when_it_has_the_name_then_is_left_alone(
    cluster: ClusterWorld,
) -> None:
    await cluster.api.create(CONFIG_MAP, {"metadata": {"name": "t-job"}, "data": {"a": "b"}})
    [status] = await cluster.launcher().reconcile("job", [replica("env-0")])
    assert (status.state, status.condition) == ("failed", "NameTaken")
    assert (await cluster.api.get(CONFIG_MAP, "t-job"))["data"] == {"a": "b"}
    assert names.OWNER not in (await cluster.api.get(CONFIG_MAP, "t-job"))["metadata"]


def _container(found: dict) -> dict:
    return found["spec"]["template"]["spec"]["containers"][0]
