"""Which GPUs jobs need, and what the chart renders for RDMA, gangs and two nodes of eight.

Run: ``python -m benchmarks.layouts [--quick]``. Nothing is measured: it asks the one function that
places processes, and the real helm, whose objects the launcher's own code turns into a job's. The
last line is one JSON object with goals 5 and 8 of real size; exits 0 whatever it says.
"""

import argparse
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.report import commit, goal
from troupe.spec import JobSpec, parse_spec
from troupe.spec.layout import plan_layout
from troupe_router.cluster import names, templates
from troupe_router.cluster.workloads import group
from troupe_router.jobs.processes import components
from troupe_router.settings import RouterSettings

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy" / "helm" / "troupe"
MODELS = ("Qwen/Qwen3-1.7B", "Qwen/Qwen3-4B", "Qwen/Qwen3-8B")
NODES, GPUS = 2, 8
FABRIC = "rdma/hca_shared_devices_a"
SETS = (
    f"trainer.nodes={NODES}",
    f"trainer.gpus={GPUS}",
    'kueueQueue="research"',
    f'trainer.extraResources={{"{FABRIC}": 1}}',
    "trainer.ipcLock=true",
    'trainer.sharedMemory="16Gi"',
)
KUBERNETES = "1.34.0"


def job(model: str, adapters: int) -> JobSpec:
    """A team whose ``adapters`` agents train an adapter each on one base."""
    agents = [f"agent{i}" for i in range(adapters)]
    policy = {"model": model, "dtype": "bfloat16", "train": {"kind": "lora", "rank": 32}}
    return parse_spec(
        {
            "name": "team",
            "steps": 1,
            "task": {"name": "plan_path"},
            "workflow": {"order": agents},
            "agents": {name: {"policy": name} for name in agents},
            "policies": dict.fromkeys(agents, policy),
            "sampling": {"max_new_tokens": 1024},
            "batch": {"tokens_per_row": 8192, "rows_per_microbatch": 1},
        }
    )


def seats(model: str, adapters: int) -> dict[str, Any]:
    """The GPUs of a whole job, where it has one and where it has two."""
    spec = job(model, adapters)
    turns, apart = plan_layout(spec, 1), plan_layout(spec, 2)
    return {
        "model": model,
        "adapters": adapters,
        "servers": sum(len(place.gpus) for place in apart.servers),
        "gpus_of_servers": apart.num_serving,
        "gpus_of_trainers": apart.num_learning,
        "on_one_gpu": turns.is_colocated and len(turns.servers) == len(turns.trainers) == 1,
    }


def rendered(helm: str, values: Path | None = None, sets: Sequence[str] = ()) -> list[Any]:
    """The chart's objects; raises CalledProcessError with helm's words."""
    argv = [helm, "template", "t", str(CHART), "--namespace", "n", "--kube-version", KUBERNETES]
    argv += ["--values", str(values)] if values else []
    argv += [part for item in sets for part in ("--set-json", item)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    return [found for found in yaml.safe_load_all(done.stdout) if found]


def job_objects(manifests: list[Any]) -> Iterator[Any]:
    """The objects that the launcher makes of a job by the chart's templates."""
    [text] = [
        each["data"]["workloads.yaml"]
        for each in manifests
        if each["kind"] == "ConfigMap" and "workloads.yaml" in each.get("data", {})
    ]
    settings = RouterSettings(launcher="kubernetes", trainer_gpus=NODES * GPUS)
    workloads = group(components("job", job(MODELS[-1], 2), settings, router="10.0.0.9:8481"))
    known = templates.as_pod_group(
        templates.parse(text, source="rendered"), workloads, name="t-job"
    )
    anchor = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"}
    for workload in workloads:
        template = templates.choose(known, workload)
        yield templates.render(template, workload, release="t", owner="job", anchor=anchor)


def cluster(helm: str) -> dict[str, Any]:
    """What a job of two nodes gets: its fabric, its gang, and how many objects fit the schema."""
    import kubernetes_validate

    manifests = rendered(helm, sets=SETS)
    objects = list(job_objects(manifests))
    for found in objects:
        kubernetes_validate.validate(found, KUBERNETES, strict=True)
    pods = [(found["spec"], found["spec"]["template"]) for found in objects]
    sizes = {pod["metadata"]["annotations"][names.POD_GROUP_SIZE] for _, pod in pods}
    [trainer] = [found for found in objects if found["kind"] == "Job"]
    limits = trainer["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    return {
        "trainer_pods": trainer["spec"]["completions"],
        "gpus_a_pod": int(limits["nvidia.com/gpu"]),
        "fabric_a_pod": int(limits.get(FABRIC, 0)),
        "gang": sorted(sizes),
        "pods": sum(spec.get("replicas") or spec.get("completions", 1) for spec, _ in pods),
        "validated": len(objects),
        "presets": {
            path.name: len(rendered(helm, path)) for path in sorted(CHART.glob("values*.yaml"))
        },
    }


def goals(rows: list[dict[str, Any]], found: dict[str, Any]) -> list[dict[str, Any]]:
    """Goals 5 and 8."""
    servers = max(row["gpus_of_servers"] for row in rows)
    whole = max(row["gpus_of_servers"] + row["gpus_of_trainers"] for row in rows)
    alone = sum(row["on_one_gpu"] for row in rows)
    listed = [
        ("5: GPUs for playing of 2 to 5 adapters on one base", servers, 1, servers == 1),
        ("5: GPUs of a whole job, server and trainer apart", whole, 2, whole == 2),
        ("5: jobs that run on one GPU, in turns", alone, len(rows), alone == len(rows)),
    ]
    if "skipped" in found:
        listed.append(("8: rendered and validated", found["skipped"], "helm", False))
    else:
        size = (found["trainer_pods"], found["gpus_a_pod"])
        gang = found["gang"] == [str(found["pods"])]
        listed += [
            ("8: nodes x GPUs of a trainer", f"{size[0]} x {size[1]}", "2 x 8", size == (2, 8)),
            ("8: RDMA devices a pod", found["fabric_a_pod"], 1, found["fabric_a_pod"] == 1),
            ("8: pods of a job in one gang", found["pods"] if gang else 0, found["pods"], gang),
            ("8: presets rendered", len(found["presets"]), 5, len(found["presets"]) >= 5),
        ]
    return [goal(*each) for each in listed]


def main() -> None:
    """Ask for every team, render the chart, print the goals."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.layouts")
    parser.add_argument("--quick", action="store_true", help="the largest model alone")
    args = parser.parse_args()
    rows = [
        seats(model, adapters)
        for model in (MODELS[-1:] if args.quick else MODELS)
        for adapters in range(2, 6)
    ]
    for row in rows:
        print(json.dumps(row), flush=True)
    own = ROOT / ".tools" / "helm"
    helm = str(own) if own.is_file() else shutil.which("helm")
    why = "helm is not installed; `python scripts/get_helm.py` fetches the pinned one"
    found = cluster(helm) if helm else {"skipped": why}
    line = {"benchmark": "layouts", "commit": commit(), "rows": rows, "cluster": found}
    print(json.dumps(line | {"goals": goals(rows, found)}))


if __name__ == "__main__":
    main()
