"""A trainer of several nodes: an indexed Job whose pods meet by torchrun."""

import pytest
import yaml
from chart_world import ROOT, Manifests, Object, Refuse, Render, edges

from troupe.errors import InvalidArgumentError
from troupe.spec import load_spec
from troupe.spec.job import TrainerSpec
from troupe_router.cluster import templates
from troupe_router.cluster.workloads import group
from troupe_router.jobs.processes import components
from troupe_router.settings import RouterSettings

SIZE = ("trainer.nodes=2", "trainer.gpus=8")


def _trainer(manifests: Manifests, gpus: int | None = None) -> Object:
    """The trainer's Job as the launcher makes it for a job."""
    text = manifests.one("ConfigMap", "t-troupe-launcher")["data"]["workloads.yaml"]
    spec = load_spec(ROOT / "examples" / "demo.yaml")
    spec = spec.model_copy(update={"trainer": TrainerSpec(gpus=gpus)})
    settings = RouterSettings(launcher="kubernetes", trainer_gpus=_router_gpus(manifests))
    [workload, *_] = group(components("demo-1", spec, settings, router="10.0.0.9:8481"))
    anchor = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"}
    template = templates.choose(templates.parse(text, source="rendered"), workload)
    return templates.render(template, workload, release="t", owner="demo-1", anchor=anchor)


def _router_gpus(manifests: Manifests) -> int:
    """TROUPE_ROUTER_TRAINER_GPUS of the chart's router; 0 where it has none."""
    [router] = manifests.one("Deployment", "t-troupe-router")["spec"]["template"]["spec"][
        "containers"
    ]
    given = {v["name"]: v.get("value") for v in router["env"]}
    return int(given.get("TROUPE_ROUTER_TRAINER_GPUS") or 0)


def _given(trainer: Object) -> tuple[str, str | None]:
    """The GPUs of a trainer's pod, and the ranks that its service starts."""
    [container] = trainer["spec"]["template"]["spec"]["containers"]
    variables = {v["name"]: v.get("value") for v in container["env"]}
    limits = container["resources"]["limits"]
    return limits.get("example.com/gpu", "0"), variables.get("TROUPE_TRAINER_RANKS")


GPUS = ("trainer.gpus=8", 'trainer.gpuResource="example.com/gpu"')


def test_trainer_when_it_has_gpus_then_each_has_a_rank_and_a_job_may_ask_for_fewer(
    render: Render,
) -> None:
    manifests = render([], *GPUS)
    assert _router_gpus(manifests) == 8
    assert _given(_trainer(manifests)) == ("8", "8")
    fewer = _trainer(manifests, gpus=2)
    assert _given(fewer)[0] == "2"  # and the trainer takes the spec's number before its variable
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    kubernetes_validate.validate(fewer, "1.34.0", strict=True)


def test_trainer_when_the_chart_gives_no_gpus_then_a_job_gets_none(render: Render) -> None:
    manifests = render()
    assert _router_gpus(manifests) == 0
    assert _given(_trainer(manifests, gpus=2)) == ("0", None)


def test_trainer_when_no_launcher_makes_it_then_its_ranks_are_its_gpus(render: Render) -> None:
    manifests = render([], *GPUS, 'launcher.kind="none"')
    [trainer] = [
        each
        for each in manifests.of("Deployment", "StatefulSet")
        if each["metadata"]["name"].endswith("-trainer")
    ]
    assert _given(trainer) == ("8", "8")


def test_trainer_when_of_two_nodes_then_a_job_has_all_gpus_or_is_refused(render: Render) -> None:
    manifests = render([], *SIZE)
    assert _router_gpus(manifests) == 16
    assert _trainer(manifests, gpus=16)["spec"]["completions"] == 2
    with pytest.raises(InvalidArgumentError, match=r"2 nodes of 8 GPUs here .* can't be 8"):
        _trainer(manifests, gpus=8)


def test_trainer_when_of_two_nodes_then_pods_meet_at_the_first_by_torchrun(render: Render) -> None:
    manifests = render([], *SIZE)
    job = _trainer(manifests)
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2)
    assert spec["backoffLimit"] == 12
    pod = spec["template"]["spec"]
    [trainer] = pod["containers"]
    # Kubernetes calls the pods <job>-<index>, below the Service that the subdomain names.
    service = manifests.one("Service", pod["subdomain"])
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"].items() <= spec["template"]["metadata"]["labels"].items()
    fields = {
        v["name"]: v["valueFrom"]["fieldRef"]["fieldPath"]
        for v in trainer["env"]
        if "valueFrom" in v and "fieldRef" in v["valueFrom"]
    }
    assert fields["JOB_NAME"] == "metadata.labels['batch.kubernetes.io/job-name']"
    assert [*trainer["command"], *trainer["args"]] == [
        *("python", "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=8"),
        *("--node-rank=$(JOB_COMPLETION_INDEX)", "--master-addr=$(JOB_NAME)-0.t-troupe-ranks"),
        *("--master-port=29400", "--max-restarts=0", "-m", "troupe_trainer"),
    ]
    assert trainer["resources"]["limits"]["nvidia.com/gpu"] == "8"


def test_trainer_when_of_two_nodes_then_only_the_first_is_asked_whether_it_serves(
    render: Render,
) -> None:
    [trainer] = _trainer(render([], *SIZE))["spec"]["template"]["spec"]["containers"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        [shell, flags, script] = trainer[probe]["exec"]["command"]
        assert (shell, flags) == ("sh", "-ec")
        assert script.startswith('test "$JOB_COMPLETION_INDEX" != 0 || exec python -m troupe.cli.')


@pytest.mark.parametrize("version", ["1.29.0", "1.34.0"])
def test_trainer_when_of_two_nodes_then_fits_the_strict_schema(
    render: Render, version: str
) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    manifests = render([], *SIZE)
    kubernetes_validate.validate(_trainer(manifests), version, strict=True)
    for found in manifests.of("Service", "NetworkPolicy"):
        kubernetes_validate.validate(found, version, strict=True)


def test_policies_when_of_two_nodes_then_only_trainers_reach_each_other_besides(
    render: Render,
) -> None:
    more = edges(render([], *SIZE)) - edges(render())
    assert more == {("trainer", "trainer", 32768), ("trainer", "trainer", 60999)}
    text = yaml.safe_dump(render([], *SIZE).one("NetworkPolicy", "t-troupe-trainer"))
    assert text.count("port: 29400") == 2


def test_trainer_when_of_one_node_then_nothing_of_this_is_there(render: Render) -> None:
    manifests = render()
    job = _trainer(manifests)
    assert "completionMode" not in job["spec"]
    assert job["spec"]["backoffLimit"] == 6
    pod = job["spec"]["template"]["spec"]
    assert "subdomain" not in pod
    assert "command" not in pod["containers"][0]
    assert "ranks" not in {
        s["metadata"]["name"].rpartition("-")[2] for s in manifests.of("Service")
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("trainer.nodes=0",), "'/trainer/nodes': minimum: got 0, want 1"),
        (("trainer.nodes=2", 'launcher.kind="none"'), "only the launcher makes a trainer of"),
        (("trainer.nodes=2", "trainer.settings.ranks=8"), "Remove trainer.settings.ranks"),
        (("trainer.gpus=8", "trainer.settings.ranks=4"), "each GPU has a rank. Remove trainer.s"),
    ],
)
def test_nodes_when_they_cannot_be_then_refused_in_words(
    refuse: Refuse, given: tuple[str, ...], words: str
) -> None:
    assert words in refuse(*given)
