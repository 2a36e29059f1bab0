"""What a spec may name: modules, folders, hub ids, and no secrets."""

import os
from pathlib import Path
from typing import Any

import pytest

from troupe import plugins
from troupe.errors import InvalidArgumentError
from troupe.spec import JobSpec, SpecInvalidError, parse_spec
from troupe_router.jobs.allowlist import Allowlist
from troupe_router.jobs.checks import resolve, with_copies
from troupe_router.jobs.secrets import secret_issues
from troupe_router.settings import RouterSettings


def spec(**more: Any) -> JobSpec:
    document = {
        "name": "demo",
        "steps": 1,
        "task": {"name": "plan_path"},
        "workflow": {"order": ["tool", "planner"]},
        "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
        "policies": {"p": {"model": "Qwen/Qwen3-0.6B"}},
    }
    return parse_spec({**document, **more})


def with_model(model: str) -> JobSpec:
    return spec(policies={"p": {"model": model}})


def issues_of(given: JobSpec, allowed: Allowlist) -> dict[str, str]:
    with pytest.raises(SpecInvalidError) as caught:
        resolve(given, allowed)
    return {issue.pointer: issue.message for issue in caught.value.issues}


NOTHING = Allowlist(modules=(), folders=(), hub_ids=())


@pytest.mark.parametrize(
    ("address", "more", "modules"),
    [
        ("127.0.0.1:8480", {}, None),
        ("0.0.0.0:8480", {}, ()),
        ("0.0.0.0:8480", {"plugin_modules": "*"}, None),
        ("0.0.0.0:8480", {"plugin_modules": "mine, theirs.tasks"}, ("mine", "theirs.tasks")),
        ("127.0.0.1:8480", {"plugin_modules": ""}, ()),
    ],
)
def test_modules_when_nothing_is_set_then_any_on_loopback_and_none_elsewhere(
    address: str, more: dict[str, str], modules: tuple[str, ...] | None
) -> None:
    assert Allowlist.from_settings(RouterSettings(rest_address=address, **more)).modules == modules


def test_folders_when_nothing_is_set_then_models_and_runs_on_a_public_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    public = RouterSettings(rest_address="0.0.0.0:8480", runs_dir=tmp_path / "runs")
    assert Allowlist.from_settings(public).folders == (tmp_path / "models", tmp_path / "runs")
    assert Allowlist.from_settings(RouterSettings(rest_address="[::1]:8480")).folders is None


@pytest.mark.parametrize(
    "name", ["os:system", "subprocess:run", "troupe_router.app:RouterApp", "troupe.tasks:x"]
)
def test_code_when_a_spec_names_a_module_that_is_not_allowed_then_is_not_even_imported(
    name: str,
) -> None:
    for where in ("task", "workflow", "algorithm"):
        key = "name" if where == "task" else "kind"
        given = spec(
            **{
                where: {
                    key: name,
                    **({"order": ["tool", "planner"]} if where == "workflow" else {}),
                }
            }
        )
        [said] = issues_of(given, Allowlist(modules=())).values()
        assert "may not load from a spec" in said
    tracked = spec(trackers=[{"kind": name}])
    assert "may not load" in issues_of(tracked, Allowlist(modules=()))["/trackers/0/kind"]


@pytest.mark.parametrize("field", ["expert", "parser", "renderer", "env"])
def test_code_when_named_inside_an_adapters_params_then_is_refused_too(field: str) -> None:
    params = {"env": "CartPole-v1", "return_bound": 1.0, field: "os:system"}
    given = spec(
        task={"name": "gymnasium", "params": params},
        workflow={"order": ["player"]},
        agents={"player": {"policy": "p"}},
    )
    said = " ".join(issues_of(given, Allowlist(modules=())).values())
    assert "'os:system' is code that this router may not load" in said


def test_code_when_a_module_is_allowed_then_its_own_alone_loads() -> None:
    with plugins.only_modules(["troupe_tasks"]):
        assert plugins.load(plugins.TASKS, "troupe_tasks.plan_path.family:PlanPath").name
        # What it imports from elsewhere is not its own.
        for name in ("troupe_tasks.plan_path.family:Any", "troupe_tasksother:x", "troupe:tasks"):
            with pytest.raises(InvalidArgumentError, match="may not load from a spec"):
                plugins.load(plugins.TASKS, name)
        assert plugins.load(plugins.TASKS, "plan_path")
    assert plugins.load(plugins.ENGINES, "os:getcwd") is os.getcwd


def test_model_when_outside_of_the_folders_then_refused_without_a_look(tmp_path: Path) -> None:
    inside, outside = tmp_path / "models" / "m", tmp_path / "private"
    for folder in (inside, outside):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    (tmp_path / "models" / "link").symlink_to(outside)
    allowed = Allowlist(folders=(tmp_path / "models",))
    resolved, _ = resolve(with_model(str(inside)), allowed)
    assert resolved.policies["p"].model == str(inside)
    for model in (
        str(outside),
        str(tmp_path / "models" / ".." / "private"),
        str(tmp_path / "models" / "link"),
        str(tmp_path / "absent"),
        "/etc",
        "../../etc",
        "~root",
    ):
        [said] = issues_of(with_model(model), allowed).values()
        assert "lies outside of those that this router takes models from" in said


@pytest.mark.parametrize("address", ["0.0.0.0:8480", "127.0.0.1:8480"])
def test_model_of_a_run_when_rollouts_do_not_mount_the_runs_then_is_refused(
    tmp_path: Path, address: str
) -> None:
    merged = tmp_path / "runs" / "a-1" / "policies" / "p" / "merged"
    merged.mkdir(parents=True)
    (merged / "config.json").write_text("{}")
    there = RouterSettings(rest_address=address, runs_dir=tmp_path / "runs")
    resolved, _ = resolve(with_model(str(merged)), Allowlist.from_settings(there))
    assert resolved.policies["p"].model == str(merged)
    without = there.model_copy(update={"models_of_runs": False})
    issues = issues_of(with_model(str(merged)), Allowlist.from_settings(without))
    assert "which the rollouts of this router do not mount" in issues["/policies/p/model"]


def test_data_when_outside_of_the_folders_then_refused_without_a_look(tmp_path: Path) -> None:
    inside, outside = tmp_path / "data" / "math", tmp_path / "private"
    row = '{"question": "1+1?", "answer": "2"}\n'
    for folder in (inside, outside):
        folder.mkdir(parents=True)
        (folder / "test.jsonl").write_text(row)
    (inside / "link.jsonl").symlink_to(outside / "test.jsonl")

    def asking(data: Any) -> JobSpec:
        return spec(
            task={"name": "math", "params": {"data": data}},
            workflow={"order": ["reasoner", "tool"]},
            agents={"reasoner": {"policy": "p"}, "tool": {"policy": "p"}},
        )

    allowed = Allowlist(data=(tmp_path / "data",))
    for data, at in (
        (str(outside), ""),
        (str(tmp_path / "absent.jsonl"), ""),
        (str(inside / ".." / ".." / "private"), ""),
        (str(inside / "link.jsonl"), ""),
        ({"test": "/etc/passwd"}, "/test"),
    ):
        found = issues_of(asking(data), allowed)
        assert "lies outside of the folders" in found[f"/task/params/data{at}"], found
        assert len(found) == 1
    assert resolve(asking(str(inside)), allowed)[1].family.name == "math"
    public = RouterSettings(rest_address="0.0.0.0:1", data_folders=str(tmp_path / "data"))
    assert Allowlist.from_settings(public).data == (tmp_path / "data",)
    assert Allowlist.from_settings(RouterSettings(rest_address="127.0.0.1:1")).data is None


def test_model_when_of_the_hub_then_by_pattern(tmp_path: Path) -> None:
    assert resolve(with_model("Qwen/Qwen3-0.6B"), Allowlist(hub_ids=("Qwen/*",)))
    [said] = issues_of(with_model("evil/model"), Allowlist(hub_ids=("Qwen/*",))).values()
    assert "TROUPE_ROUTER_MODEL_IDS" in said
    assert issues_of(with_model("Qwen/Qwen3-0.6B"), NOTHING)


def downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Allowlist:
    """What the chart's router allows with one model of ``models.download``."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "models" / "Qwen3-0.6B"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    copies = "Qwen/Qwen3-0.6B=models/Qwen3-0.6B, Qwen/Qwen3-8B=models/Qwen3-8B"
    settings = RouterSettings(rest_address="0.0.0.0:1", hub_copies=copies, model_ids="")
    return Allowlist.from_settings(settings)


def test_model_when_it_was_downloaded_then_the_job_has_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = downloaded(tmp_path, monkeypatch)
    folder, hub_id = str(tmp_path / "models" / "Qwen3-0.6B"), "Qwen/Qwen3-0.6B"
    given = spec(
        policies={"p": {"model": hub_id}},
        algorithm={"kind": "ippo", "critic": {"model": hub_id}},
    )
    taught = spec(policies={"p": {"model": "a/b", "teacher": hub_id}})
    at_place = with_copies(taught, allowed.copies).policies["p"].models()
    assert at_place == {"model": "a/b", "teacher": "models/Qwen3-0.6B"}
    resolved = resolve(given, allowed)[0]
    assert resolved.policies["p"].model == folder
    assert resolved.algorithm.critic
    assert resolved.algorithm.critic.model == "models/Qwen3-0.6B"
    assert resolve(resolved, allowed)[0] == resolved  # as when the job is resumed
    assert resolve(with_model("models/Qwen3-0.6B"), allowed)[0].policies["p"].model == folder


def test_model_when_it_was_not_downloaded_then_refused_by_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = downloaded(tmp_path, monkeypatch)
    [other] = issues_of(with_model("Qwen/Qwen3-14B"), allowed).values()
    assert "it takes Qwen/Qwen3-0.6B, Qwen/Qwen3-8B" in other
    assert "models.download" in other
    [early] = issues_of(with_model("Qwen/Qwen3-8B"), allowed).values()
    assert "'models/Qwen3-8B' is not there yet" in early


def test_copies_when_misspelt_then_refused() -> None:
    with pytest.raises(ValueError, match="write Qwen/Qwen3-"):
        RouterSettings(hub_copies="Qwen/Qwen3-1.7B")
    twice = RouterSettings(hub_copies="a/b=models/one,a/b=models/two")
    assert twice.copies == {"a/b": "models/one"}


def test_model_when_of_a_critic_then_the_same_holds() -> None:
    given = spec(algorithm={"kind": "ippo", "critic": {"model": "/etc"}})
    assert "lies outside" in issues_of(given, Allowlist(folders=()))["/algorithm/critic/model"]


@pytest.mark.parametrize(
    ("uri", "is_allowed"),
    [
        ("http://mlflow.inside:5000/", True),
        ("https://a.trackers.example/x", True),
        ("HTTPS://A.TRACKERS.EXAMPLE", True),
        ("http://169.254.169.254/latest", False),
        ("http://redis:6379", False),
        ("http://a.trackers.example@redis:6379", False),
        ("http://[", False),
    ],
)
def test_tracker_when_its_server_is_not_the_operators_then_only_listed_hosts(
    monkeypatch: pytest.MonkeyPatch, uri: str, is_allowed: bool
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow.inside:5000")
    settings = RouterSettings(rest_address="0.0.0.0:1", tracker_hosts="*.trackers.example")
    allowed = Allowlist.from_settings(settings)
    given = spec(trackers=[{"kind": "mlflow", "options": {"tracking_uri": uri}}])
    if is_allowed:
        assert resolve(given, allowed)
        return
    assert issues_of(given, allowed)["/trackers/0/options/tracking_uri"]
    assert Allowlist.from_settings(RouterSettings(rest_address="0.0.0.0:1")).tracker_hosts == ()
    assert (
        Allowlist.from_settings(RouterSettings(rest_address="127.0.0.1:1")).tracker_fault(uri)
        is None
    )


@pytest.mark.parametrize(
    ("options", "at"),
    [
        ({"api_key": "S3CRET"}, "/api_key"),
        ({"WANDB_API_KEY": "S3CRET"}, "/WANDB_API_KEY"),
        ({"auth": {"password": "S3CRET"}}, "/auth/password"),
        ({"list": [{"access_token": "S3CRET"}]}, "/list/0/access_token"),
        ({"tracking_uri": "https://me:S3CRET@mlflow.example"}, "/tracking_uri"),
        ({"token": "S3CRET"}, "/token"),
        ({"hf_token": "S3CRET"}, "/hf_token"),
        ({"GITHUB_TOKEN": "S3CRET"}, "/GITHUB_TOKEN"),
        ({"session_token": "S3CRET"}, "/session_token"),
        ({"api_tokens": ["S3CRET"]}, "/api_tokens"),
        ({"secret_key": "S3CRET"}, "/secret_key"),
        ({"signing_key": "S3CRET"}, "/signing_key"),
        ({"client_secret": "S3CRET"}, "/client_secret"),
        ({"pwd": "S3CRET"}, "/pwd"),
        ({"password": 12345}, "/password"),
        ({"X-Api-Key": "S3CRET"}, "/X-Api-Key"),
        ({"openaiApiKey": "S3CRET"}, "/openaiApiKey"),
        ({"OPENAI_APIKEY": "S3CRET"}, "/OPENAI_APIKEY"),
        ({"api_keys": ["", "S3CRET"]}, "/api_keys"),
        ({"api_key": {"value": "S3CRET"}}, "/api_key"),
        ({"credentials": {"user": "S3CRET"}}, "/credentials"),
        ({"headers": ["Authorization: Bearer S3CRET"]}, "/headers/0"),
        ({"headers": {"x": "Bearer S3CRET"}}, "/headers/x"),
        ({"url": "https://S3CRET@host/"}, "/url"),
        ({"url": "redis://:S3CRET@host/"}, "/url"),
        ({"url": "https://host/?x=1&api_key=S3CRET"}, "/url"),
        ({"note": "use hf_S3CRETS3CRETS3CRETS3CRET"}, "/note"),
        ({"note": "sk-S3CRETS3CRETS3CRETS3CRET"}, "/note"),
        ({"note": "ghp_S3CRETS3CRETS3CRETS3CRETS3CRET"}, "/note"),
        ({"note": "AKIAS3CRETS3CRETS3CR"}, "/note"),
        ({"note": "-----BEGIN RSA PRIVATE KEY-----"}, "/note"),
    ],
)
def test_secret_when_in_a_trackers_options_then_refused_and_never_quoted(
    options: dict[str, Any], at: str
) -> None:
    [issue] = secret_issues(spec(trackers=[{"kind": "csv", "options": options}]))
    assert issue.pointer == f"/trackers/0/options{at}"
    assert "S3CRET" not in issue.message


@pytest.mark.parametrize(
    "options",
    [
        {"tracking_uri": "https://mlflow.example/a@b"},
        {"max_tokens": "5", "stop_token": "x", "api_key": ""},
        {"tokenizer": "x", "secretary": "problem"},
        {"max_new_tokens": 5, "tokens_per_row": 512, "pad_token": "<pad>", "eos_token": "</s>"},
        {"tokens": ["a", "b"], "token_budget": "10", "secret_santa": "game", "password_rules": "x"},
        {"key": "C major", "answer_key": "B", "primary_key": "id", "keys": ["up", "down"]},
        {"vocab": ["sk-learn", "hf_x", "bearer", "authorization", "AKIA"], "id": "token"},
        {"api_key": {}, "password": False, "secrets": [], "credentials": None},
        {"url": "https://host/?token_type=x&page=2", "repo": "ssh://git@host/x"},
    ],
)
def test_option_when_it_is_no_secret_then_is_left_alone(options: dict[str, Any]) -> None:
    assert secret_issues(spec(trackers=[{"kind": "csv", "options": options}])) == []


def test_job_when_a_teacher_is_the_policys_own_model_then_is_refused() -> None:
    taught = {"model": "Qwen/Qwen3-0.6B", "teacher": "Qwen/Qwen3-0.6B"}
    own = spec(policies={"p": taught}, algorithm={"kind": "distill"})
    assert "own model" in issues_of(own, Allowlist())["/policies/p/teacher"]
