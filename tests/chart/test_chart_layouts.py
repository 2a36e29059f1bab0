"""The chart given what `troupe plan --on chart` prints gives each process the GPUs that it said."""

from typing import Any

import pytest
import yaml
from chart_world import CHART, ROOT, Manifests, Render

from troupe.cli.layout_settings import chart_preset, chart_values
from troupe.spec import load_spec
from troupe.spec.layout import GpuLayout, plan_layout
from troupe.spec.policy import LoraSpec


def layout_of(gpus: int) -> GpuLayout:
    return plan_layout(load_spec(ROOT / "examples" / "demo.yaml"), gpus)


def rendered(render: Render, layout: GpuLayout, *more: str) -> Manifests:
    sets = [f"{name}={value}" for name, value in chart_values(layout).items()]
    return render([CHART / chart_preset(layout).rpartition("/")[2]], *sets, *more)


def container(manifests: Manifests, name: str) -> dict[str, Any]:
    [found] = [c for of, c, _ in manifests.containers() if of.endswith(f"/{name}")]
    return found


def variables(found: dict[str, Any]) -> dict[str, str]:
    return {v["name"]: v.get("value", "") for v in found["env"]}


@pytest.mark.parametrize("gpus", [2, 8])
def test_chart_when_given_a_plans_values_then_pods_ask_for_its_gpus(
    render: Render, gpus: int
) -> None:
    layout = layout_of(gpus)
    manifests = rendered(render, layout)
    rollout, trainer = container(manifests, "rollout"), container(manifests, "trainer")
    [server], [learner] = layout.servers, layout.trainers
    assert rollout["resources"]["limits"]["nvidia.com/gpu"] == str(server.tp_size)
    assert variables(rollout)["TROUPE_ROLLOUT_SGLANG_TP_SIZE"] == str(server.tp_size)
    assert trainer["resources"]["limits"]["nvidia.com/gpu"] == str(len(learner.gpus))


def test_preset_of_eight_when_nothing_is_set_then_is_what_the_plan_says(render: Render) -> None:
    preset = CHART / "values-eight-gpu-node.yaml"
    [model] = [each["repo"] for each in yaml.safe_load(preset.read_text())["models"]["download"]]
    spec = load_spec(ROOT / "examples" / "demo.yaml")
    policy = spec.policies["shared"].model_copy(
        update={"model": model, "dtype": "bfloat16", "train": LoraSpec(rank=32)}
    )
    layout = plan_layout(spec.model_copy(update={"policies": {"shared": policy}}), 8)
    assert chart_preset(layout).endswith(preset.name)
    [server], [learner] = layout.servers, layout.trainers
    manifests = render([preset])
    rollout, trainer = container(manifests, "rollout"), container(manifests, "trainer")
    assert rollout["resources"]["limits"]["nvidia.com/gpu"] == str(server.tp_size)
    assert trainer["resources"]["limits"]["nvidia.com/gpu"] == str(len(learner.gpus))
    standing = render([preset], 'launcher.kind="none"').one("StatefulSet", "t-troupe-rollout-gpu")
    assert standing["spec"]["replicas"] == len(server.gpus)
    assert layout.num_serving + layout.num_learning == 8


def test_chart_when_there_is_one_gpu_then_server_and_trainer_take_turns(render: Render) -> None:
    manifests = rendered(render, layout_of(1))
    rollout, trainer = container(manifests, "rollout"), container(manifests, "trainer")
    assert variables(rollout)["TROUPE_ROLLOUT_SGLANG_COLOCATED"] == "true"
    assert variables(trainer)["TROUPE_TRAINER_COLOCATED"] == "true"
    router = variables(container(manifests, "router"))
    assert (router["TROUPE_ROUTER_GPUS"], router["TROUPE_ROUTER_GPU_GB"]) == ("1", "80")
