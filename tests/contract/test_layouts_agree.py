"""What `troupe plan` says is what is made: by the launcher, by compose, by the chart's values."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from troupe.cli.layout_settings import chart_values, compose_variables, spec_changes
from troupe.cli.specs import with_overrides
from troupe.errors import InvalidArgumentError
from troupe.runtime.launch.launcher import Component
from troupe.spec import JobSpec, load_spec, parse_spec
from troupe.spec.layout import GpuLayout, plan_layout, with_layout
from troupe_router.jobs.processes import components
from troupe_router.settings import RouterSettings

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
_DEFAULT = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def example(path: Path) -> JobSpec:
    return load_spec(path)


def made(spec: JobSpec, gpus: int) -> list[Component]:
    """What the launcher of `troupe up` starts."""
    settings = RouterSettings(gpus=gpus)
    return components("job-1", spec, settings, router="127.0.0.1:1")


def visible(component: Component) -> list[int]:
    shown = component.env["CUDA_VISIBLE_DEVICES"]
    return [int(number) for number in shown.split(",")] if shown else []


def interpolated(path: Path, variables: dict[str, str]) -> Any:
    """A compose file as docker compose reads it with ``variables``."""
    text = _DEFAULT.sub(lambda m: variables.get(m[1], m[2] or ""), path.read_text("utf-8"))
    return yaml.safe_load(text)["services"]


@pytest.mark.parametrize("gpus", [2, 8])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_plan_of_an_example_when_it_is_launched_then_each_process_has_the_devices_it_said(
    path: Path, gpus: int
) -> None:
    spec = example(path)
    try:
        layout = plan_layout(spec, gpus, can_spread=False)
    except InvalidArgumentError:
        assert gpus == 2  # two servers and a trainer are three
        return
    by_name = {c.name: c for c in made(with_layout(spec, layout), gpus)}
    for server in layout.servers:
        for i, devices in enumerate(server.gpus):
            replica = by_name.pop(f"rollout-{server.pool.name}-{i}")
            assert visible(replica) == list(devices)
            assert replica.env["TROUPE_ROLLOUT_SGLANG_TP_SIZE"] == str(server.tp_size)
            assert replica.env["TROUPE_ROLLOUT_ENGINE"] == "sglang"
    for trainer in layout.trainers:
        name = f"trainer-{trainer.policy}-0" if trainer.policy else "trainer-0"
        assert visible(by_name.pop(name)) == list(trainer.gpus)
    assert {visible(c) == [] for c in by_name.values()} == {True}  # envs see no device


def test_launcher_when_no_gpus_are_set_then_processes_keep_the_devices_that_they_see() -> None:
    spec = example(ROOT / "examples" / "demo.yaml")
    for component in components("job-1", spec, RouterSettings(), router="127.0.0.1:1"):
        assert "CUDA_VISIBLE_DEVICES" not in component.env
        assert "TROUPE_ROLLOUT_ENGINE" not in component.env


def layout_of_demo(gpus: int, max_replicas: int | None = None) -> GpuLayout:
    spec = example(ROOT / "examples" / "demo.yaml")
    return plan_layout(spec, gpus, max_replicas=max_replicas)


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_compose_when_given_the_plans_variables_then_its_containers_have_those_devices(
    gpus: int,
) -> None:
    layout = layout_of_demo(gpus, max_replicas=1)
    services = interpolated(ROOT / "docker-compose.gpu.yml", compose_variables(layout))
    rollout, trainer = services["rollout"]["environment"], services["trainer"]["environment"]
    [server], [learner] = layout.servers, layout.trainers
    assert str(rollout["CUDA_VISIBLE_DEVICES"]) == ",".join(map(str, server.gpus[0]))
    assert str(rollout["TROUPE_ROLLOUT_SGLANG_TP_SIZE"]) == str(server.tp_size)
    assert str(trainer["CUDA_VISIBLE_DEVICES"]) == ",".join(map(str, learner.gpus))
    assert str(trainer["TROUPE_TRAINER_RANKS"]) == str(len(learner.gpus))
    assert layout.num_serving + layout.num_learning == gpus


def test_compose_when_there_is_one_gpu_then_both_containers_have_it_and_take_turns() -> None:
    layout = layout_of_demo(1, max_replicas=1)
    variables = compose_variables(layout)
    files = variables["COMPOSE_FILE"].split(":")
    assert all((ROOT / name).is_file() for name in files)
    services = interpolated(ROOT / files[-1], variables)
    seen = {str(services[n]["environment"]["CUDA_VISIBLE_DEVICES"]) for n in ("rollout", "trainer")}
    assert seen == {"0"}
    assert services["rollout"]["environment"]["TROUPE_ROLLOUT_SGLANG_COLOCATED"] == "true"
    assert services["trainer"]["environment"]["TROUPE_TRAINER_COLOCATED"] == "true"
    assert services["router"]["environment"]["TROUPE_ROUTER_GPUS"] == 1


def test_compose_preset_of_eight_when_nothing_is_set_then_is_what_the_plan_says() -> None:
    layout = layout_of_demo(8, max_replicas=1)
    files = compose_variables(layout)["COMPOSE_FILE"].split(":")
    assert files[-1] == "docker-compose.eight-gpu.yml"
    services = interpolated(ROOT / files[-1], {})
    assert services == interpolated(ROOT / files[-1], compose_variables(layout))
    rollout, trainer = services["rollout"]["environment"], services["trainer"]["environment"]
    [server], [learner] = layout.servers, layout.trainers
    assert rollout["CUDA_VISIBLE_DEVICES"] == ",".join(map(str, server.gpus[0]))
    assert rollout["TROUPE_ROLLOUT_SGLANG_TP_SIZE"] == server.tp_size
    assert trainer["CUDA_VISIBLE_DEVICES"] == ",".join(map(str, learner.gpus))
    assert trainer["TROUPE_TRAINER_RANKS"] == len(learner.gpus)
    assert services["router"]["environment"]["TROUPE_ROUTER_TRAINER_GPUS"] == len(learner.gpus)


def test_launcher_when_there_is_one_gpu_then_server_and_trainer_see_it_and_take_turns() -> None:
    spec = example(ROOT / "examples" / "demo.yaml")
    by_name = {c.name: c for c in made(spec, 1)}
    rollout, trainer = by_name["rollout-shared-0"], by_name["trainer-0"]
    assert visible(rollout) == visible(trainer) == [0]
    assert rollout.env["TROUPE_ROLLOUT_SGLANG_COLOCATED"] == "true"
    assert trainer.env["TROUPE_TRAINER_COLOCATED"] == "true"


def test_compose_when_a_job_needs_two_servers_then_plan_says_what_can_have_them() -> None:
    spec = example(ROOT / "examples" / "plan_path_l3.yaml")
    with pytest.raises(InvalidArgumentError, match="2 pools"):
        compose_variables(plan_layout(spec, 8, max_replicas=1))


def test_chart_when_a_plan_has_replicas_then_its_settings_and_the_specs_add_up() -> None:
    layout = layout_of_demo(8)
    assert chart_values(layout) == {"rollout.pools[0].gpus": "1", "trainer.gpus": "4"}
    spec = example(ROOT / "examples" / "demo.yaml")
    assert spec_changes(layout, spec) == {"policies.shared.replicas": "4"}


def test_chart_when_a_teacher_is_served_then_what_plan_prints_is_a_spec_of_that_layout() -> None:
    policy = {"model": "Qwen/Qwen3-1.7B", "teacher": "Qwen/Qwen3-8B", "teacher_replicas": 2}
    document: dict[str, Any] = {
        "name": "taught",
        "steps": 1,
        "task": {"name": "plan_path"},
        "workflow": {"order": ["tool"]},
        "agents": {"tool": {"policy": "p"}},
        "policies": {"p": policy | {"dtype": "bfloat16"}},
        "algorithm": {"kind": "distill", "group_size": 4},
    }
    spec = parse_spec(document)
    layout = plan_layout(spec, 8)
    sets = [f"{name}={value}" for name, value in spec_changes(layout, spec).items()]
    changed = parse_spec(with_overrides(document, sets))
    assert changed.policies["p"] == with_layout(spec, layout).policies["p"]
    assert changed.policies["p"].teacher_replicas == 2


def test_plan_when_asked_for_json_then_it_is_the_layout(capsys: pytest.CaptureFixture[str]) -> None:
    from troupe.cli.plan_commands import plan

    plan(ROOT / "examples" / "demo.yaml", gpus=8, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert [server["replicas"] for server in document["servers"]] == [4]
    assert [trainer["gpus"] for trainer in document["trainers"]] == [[4, 5, 6, 7]]
    assert document["start"] == ["TROUPE_ROUTER_GPUS=8 TROUPE_ROUTER_GPU_GB=80 troupe up"]
