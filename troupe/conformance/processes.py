"""Checks that another process, with another hash seed, gives the same judgements."""

import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from random import Random
from typing import Any

from troupe.conformance.digest import difference
from troupe.conformance.play import mixed, play
from troupe.conformance.script import PlayScript, fields_of_script
from troupe.conformance.subject import Subject

HASH_SEEDS = ("4242", "0", "1", "2")
"""More than one, because one may agree with this process by chance."""

START_S = 60.0
"""Seconds for a process to start and import the family, besides the time of its steps."""


def other_process(subject: Subject) -> None:
    """Tasks, prompts, transitions and policies are the same in new processes."""
    if subject.reference is None:
        subject.findings.skip(
            "other_process", "no reference by which another process could load the family"
        )
        return
    env_command = shutil.which("env")
    if env_command is None:
        subject.findings.skip("other_process", "this machine has no env command to set a hash seed")
        return
    scripts = _scripts(subject)
    expected = [fields_of_script(subject.family, subject.env, script) for script in scripts]
    reference = subject.reference
    request = json.dumps(
        {
            "name": reference.name,
            "params": dict(reference.params),
            "import_paths": list(reference.import_paths),
            "sandbox": reference.sandbox,
            "scripts": [asdict(script) for script in scripts],
        }
    )
    seeds = HASH_SEEDS[: subject.limits.num_processes]
    started = [_start(env_command, seed) for seed in seeds]
    for seed, process in zip(seeds, started, strict=True):
        answer = _answer(subject, process, request, seed)
        if answer is not None:
            _compare(subject, scripts, expected, answer, seed)
    steps = sum(len(script.moves) for script in scripts)
    subject.findings.fact(
        "other_process", f"{len(scripts)} episodes, {steps} steps, in {len(seeds)} processes"
    )


def _scripts(subject: Subject) -> list[PlayScript]:
    """A few episodes; the processes play them one after another, which takes the most time."""
    scripts: list[PlayScript] = []
    for number in range(min(len(subject.tasks), 4)):
        if scripts and subject.is_late("other_process"):
            break
        scripts.append(_script(subject, number))
    return scripts


def _script(subject: Subject, number: int) -> PlayScript:
    task = subject.tasks[number]
    steps = min(12, subject.limits.max_steps)
    rng = Random(f"process/{task.id}")
    episode = play(subject, task, mixed(subject, 0.6), rng, max_steps=steps)
    moves = [(move.agent, move.action) for move in episode.moves]
    return PlayScript(task.split, task.index, tuple(moves))


def _start(env_command: str, hash_seed: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            env_command,
            f"PYTHONHASHSEED={hash_seed}",
            sys.executable,
            "-m",
            "troupe.conformance.worker",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _answer(
    subject: Subject, process: subprocess.Popen[bytes], request: str, seed: str
) -> list[list[dict[str, str]]] | None:
    limit_s = START_S + subject.limits.seconds
    try:
        out, err = process.communicate(request.encode(), timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        subject.findings.fail(
            "other_process", f"the process with hash seed {seed} did not end in {limit_s:g} s"
        )
        return None
    if process.returncode != 0:
        last = err.decode("utf-8", "replace").strip().splitlines()[-1:]
        subject.findings.fail(
            "other_process",
            f"the process with hash seed {seed} ended with status {process.returncode}: "
            f"{' '.join(last)[:300]}",
        )
        return None
    answer: Any = json.loads(out)
    return answer


def _compare(
    subject: Subject,
    scripts: list[PlayScript],
    expected: list[list[dict[str, str]]],
    actual: list[list[dict[str, str]]],
    seed: str,
) -> None:
    for script, expected_steps, actual_steps in zip(scripts, expected, actual, strict=True):
        for number, (first, second) in enumerate(zip(expected_steps, actual_steps, strict=False)):
            if different := difference(first, second):
                subject.findings.fail(
                    "other_process",
                    f"{script.split} task {script.index}, step {number}, hash seed {seed}: "
                    f"{different}",
                )
                break
