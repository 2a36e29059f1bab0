"""The digest of a base: of what a loader takes, whatever else the hub's cache holds."""

import json
from pathlib import Path

import pytest
from run_folders import write_model, write_run

from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.publishing.content import ContentOptions, content_of
from troupe.publishing.files import model_digest
from troupe.publishing.team_folder import open_team, team_of_run
from troupe.publishing.to_folder import write_team

constants = pytest.importorskip(
    "huggingface_hub.constants", reason="the hub's client is not installed"
)
BASE, COMMIT = "org/base", "a" * 40


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The base in a hub's cache: config, tokenizer, template and weights."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    repo = tmp_path / "hub" / "models--org--base"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(COMMIT)
    return write_model(repo / "snapshots" / COMMIT)


def publish(folder: Path) -> Path:
    run = write_run(folder / "pair-1")
    document = json.loads((run / "spec.json").read_text())
    for policy in document["policies"].values():
        policy["model"] = BASE
    (run / "spec.json").write_text(json.dumps(document))
    return Path(write_team(content_of(team_of_run(run), ContentOptions(), at=""), folder / "out"))


def shard(folder: Path) -> None:
    """Cut the weights into two files and an index, as transformers writes large models."""
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    (folder / "model-00002-of-00002.safetensors").write_bytes(b"more")
    weights = {str(part): f"model-0000{part}-of-00002.safetensors" for part in (1, 2)}
    index = {"metadata": {}, "weight_map": weights}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("is_sharded", [False, True])
def test_digest_when_a_snapshot_has_further_weights_then_it_is_the_same(
    snapshot: Path, tmp_path: Path, is_sharded: bool
) -> None:
    if is_sharded:
        shard(snapshot)
    team, before = publish(tmp_path), model_digest(snapshot)
    assert before
    (snapshot / "consolidated.safetensors").write_bytes(b"the same once more")
    assert model_digest(snapshot) == before
    assert open_team(team).model("tool") == str(snapshot)


def test_digest_when_any_weights_change_then_another(snapshot: Path) -> None:
    shard(snapshot)
    before = model_digest(snapshot)
    (snapshot / "model-00002-of-00002.safetensors").write_bytes(b"others")
    assert model_digest(snapshot) not in ("", before)


@pytest.mark.parametrize("missing", ["model-00002-of-00002.safetensors", "all"])
def test_team_when_the_cache_lacks_weights_then_no_digest_is_written_and_whole_ones_are_read(
    snapshot: Path, tmp_path: Path, missing: str
) -> None:
    shard(snapshot)
    gone = list(snapshot.glob("*.safetensors" if missing == "all" else missing))
    kept = {path: path.read_bytes() for path in gone}
    for path in gone:
        path.unlink()
    team = publish(tmp_path)
    assert [base.digest for base in open_team(team).manifest.bases.values()] == [""]
    for path, data in kept.items():
        path.write_bytes(data)
    assert open_team(team).model("tool") == str(snapshot)


def test_team_when_the_readers_cache_is_not_whole_then_it_says_so(
    snapshot: Path, tmp_path: Path
) -> None:
    team = publish(tmp_path)
    (snapshot / "model.safetensors").unlink()
    with pytest.raises(InvalidArgumentError, match=f"not whole.*fetch revision {COMMIT}"):
        open_team(team)


def test_team_when_the_folder_is_an_export_then_the_error_says_how_to_take_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "export.json").write_text("{}")
    with pytest.raises(NotFoundError, match=r"a run folder with --checkpoint STEP"):
        open_team(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"weight_map": []}'])
def test_digest_when_the_index_is_none_then_it_names_the_file(snapshot: Path, text: str) -> None:
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors.index.json").write_text(text)
    with pytest.raises(InvalidArgumentError, match=r"index\.json is no index"):
        model_digest(snapshot)
