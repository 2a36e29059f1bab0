"""Every file that code writes survives a power cut through troupe/durable.py, or need not."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SYNCED = (
    "services/router/troupe_router/jobs/discard.py",
    "services/trainer/troupe_trainer/checkpoint/export.py",
    "services/trainer/troupe_trainer/checkpoint/files.py",
    "services/trainer/troupe_trainer/gguf_model/convert.py",
    "services/trainer/troupe_trainer/model/stored.py",
    "services/trainer/troupe_trainer/publish/versions.py",
    "services/trainer/troupe_trainer/tiny_model/build.py",
    "troupe/cli/model_fetch.py",
    "troupe/clients/rest/answers.py",
    "troupe/data/prepare.py",
    "troupe/evaluation/folder.py",
    "troupe/publishing/to_folder.py",
    "troupe/runtime/tracking/csv.py",
    "troupe/runtime/weights/store.py",
)
"""They write bytes themselves and make them durable with ``troupe.durable``."""
NOT_KEPT = {
    "services/router/troupe_router/run/record_lines.py": "what lay in a record's place, put aside",
    "services/env/troupe_env/bundles/packages.py": "a list for pip, in a folder of this life",
    "troupe/bundles/facts_process.py": "the answer to the process that asked, on its pipe",
    "troupe/bundles/archive.py": "a bundle unpacked for a process that runs",
    "services/env/troupe_env/sandbox/cgroups.py": "files of the kernel",
    "services/env/troupe_env/sandbox/session.py": "a file of the kernel",
    "services/env/troupe_env/sandbox/inside/leftovers.py": "renames what it removes",
    "services/env/troupe_env/sandbox/inside/root.py": "a sandbox's root, in memory",
    "services/env/troupe_env/sandbox/inside/program.py": "a program's own streams",
    "services/rollout/troupe_rollout/engines/sglang/files.py": "weights for an engine that runs",
    "services/rollout/troupe_rollout/engines/sglang/process.py": "the engine's log",
    "services/rollout/troupe_rollout/staging.py": "weights that are being received",
    "services/trainer/troupe_trainer/job.py": "an empty file that tries the folder",
    "services/trainer/troupe_trainer/model/peak_memory.py": "a file of the kernel",
    "troupe/cli/init_commands.py": "a spec to edit, by a command",
    "troupe/cli/platform.py": "the supervisor's log",
    "troupe/cli/platform_record.py": "the supervisor that runs; none does after a power cut",
    "troupe/conformance/scaffold.py": "a package to edit, by a command",
    "troupe/evaluation/bare.py": "weights of an evaluation that runs",
    "troupe/evaluation/transcripts.py": "made anew from episodes.jsonl",
    "troupe/publishing/registry.py": "a blob in a draft folder, which oci.py puts in place, synced",
    "troupe/runtime/faults.py": "requests of tests",
    "troupe/training/remote_results.py": "copies of another machine's results, for this process",
    "troupe/runtime/launch/local.py": "logs of processes",
    "troupe/runtime/launch/records.py": "processes that run; none does after a power cut",
}
_WRITES = {"write_text", "write_bytes", "rename", "save_file", "save_pretrained"}


def writing_calls(tree: ast.AST) -> Iterator[int]:
    """Lines of calls that write, make or rename a file."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = node.func.id if isinstance(node.func, ast.Name) else name
        inner = [part for argument in node.args for part in ast.walk(argument)]
        words = [part.value for part in inner if isinstance(part, ast.Constant)]
        modes = [word for word in words if isinstance(word, str) and set(word) <= set("rwabx+t")]
        is_path_replace = (
            name == "replace"
            and isinstance(node.func, ast.Attribute)
            and len(node.args) == 1
            and not node.keywords
        )
        opens = name in ("open", "fdopen") and any(set(mode) & set("wax+") for mode in modes)
        if name in _WRITES or is_path_replace or opens:
            yield node.lineno


def writers() -> dict[str, list[int]]:
    files = [path for room in ("troupe", "services") for path in (ROOT / room).rglob("*.py")]
    found = {
        str(path.relative_to(ROOT)): list(writing_calls(ast.parse(path.read_text("utf-8"))))
        for path in files
        if "api" not in path.parts
    }
    return {name: lines for name, lines in found.items() if lines}


def test_writers_of_files_are_known_and_each_says_why_it_may() -> None:
    known = {"troupe/durable.py", *SYNCED, *NOT_KEPT}
    unknown = {name: lines for name, lines in writers().items() if name not in known}
    assert not unknown, (
        f"these write files, at these lines: {unknown}. Use troupe.durable (replace_file, put, "
        "append), or say in this file why the file need not survive a power cut"
    )
    assert known - writers().keys() == set(), "these write no file any more; take them off the list"


@pytest.mark.parametrize("name", SYNCED)
def test_writers_whose_files_must_survive_use_the_one_module(name: str) -> None:
    assert "from troupe.durable import" in (ROOT / name).read_text("utf-8")


@pytest.mark.parametrize(
    "text",
    ["p.write_text(x)", "d.rename(p)", "d.replace(p)", "p.open('a')", "open(p, 'r+b')"],
)
def test_a_new_writer_is_noticed(text: str) -> None:
    assert list(writing_calls(ast.parse(text))) == [1]
