"""``troupe.train``, ``train_async`` and ``resume``: a job from Python, judged by this process.

Owns the sequence judge, platform up, submit, watch, down. Never leaves behind a platform that it
started.
"""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troupe.cli import options as opt
from troupe.cli import platform
from troupe.cli.output import quiet_logs
from troupe.cli.settings import CliSettings, settings_from
from troupe.cli.train_commands import Begin, job_to_end, run_folder, submitting
from troupe.clients.rest import JobDocument, RestClient
from troupe.errors import InvalidArgumentError, JobFailedError, TroupeError
from troupe.spec import load_spec
from troupe.training.dataset import Row, TaskRows
from troupe.training.functions import Answer, CallerEnvironment, Functions, Rewards, Texts
from troupe.training.job import Agents, instructions, job_spec, training_options
from troupe.training.judge_server import JudgeServer, socket_path
from troupe.training.results import RunResults
from troupe.training.task import TASK_NAME, DatasetParams

Observe = Callable[[Row, str, list[Answer]], object]
Done = Callable[[Row, list[Answer]], bool]
Success = Callable[[Row, Texts], bool] | float


def train(
    agents: Agents,
    dataset: object,
    reward: Callable[[Row, Texts], Rewards],
    *,
    held_out: object = None,
    observe: Observe | None = None,
    done: Done | None = None,
    success: Success | None = None,
    runs_dir: str | Path | None = None,
    quiet: bool = False,
    **options: Any,
) -> RunResults:
    """Train a team on the rows of a data set, and return the results of the run.

    Starts a platform on this machine where none runs (``troupe up``), submits the job, shows its
    progress and stops what it started. This process judges: it must live as long as the job.
    Ctrl-C ends the job in order; ``resume`` goes on from its last checkpoint.

    Args:
        agents: instructions by agent, in the order in which they act; or names alone.
        dataset: rows: a list of dicts, a ``datasets.Dataset``, or the path of a file of rows.
        reward: ``reward(row, texts)``, where ``texts`` maps each agent to what it wrote in this
            turn: a number for the team, or a number for each agent by name. Called at the end of
            every turn. It must be a pure function of its arguments, since a call may be repeated.
        held_out: rows for evaluation; without it, the last tenth of the different rows of
            ``dataset`` (at most 200), with all their repeats taken out of training.
        observe: ``observe(row, agent, history)``: the prompt as a text or chat messages. Without
            it, the agent's instruction as system message and the row's ``prompt``.
        done: ``done(row, history)``: ends an episode before ``max_turns``.
        success: ``success(row, texts)``, or the least reward of a solved task, as its mean over
            agents. Without it no task counts as solved, and the held-out reward is the curve to
            look at.
        runs_dir: folder of run folders [runs].
        quiet: print nothing, unless the job is paused or interrupted.
        options: the fields of ``troupe.training.job.TrainingOptions``: ``model`` (a folder or a
            hub id, or one for each agent), ``algorithm``, ``steps``, ``group_size``,
            ``tasks_per_step``, ``max_turns``, ``max_new_tokens``, ``temperature``,
            ``learning_rate``, ``lora_rank`` (None: full weights), ``shared_policy``,
            ``eval_every``, ``judge_timeout_s`` (of one call of a function, waiting included),
            ``name``, ``seed``, and ``overrides``: any field of the job spec by its
            path, ``{"limits.env_timeout_s": 300}``.

    Raises:
        InvalidArgumentError: an argument is wrong (SpecInvalidError names fields of the spec).
        JobFailedError: the job failed or was cancelled. Its cause is the exception that a function
            raised, where one did.
        KeyboardInterrupt: interrupted, after the job ended in order.

    Example:
        ```python
        run = troupe.train(
            {"summarizer": "Sum up in one line.", "elaborator": "Sum up in three lines."},
            dataset=rows, reward=ratio, model="models/smollm2", steps=50,
        )
        run.plot().savefig("curve.png")
        ```
    """
    functions = Functions(reward, observe, done, success)
    return _run(_begun(agents, dataset, held_out, functions, runs_dir, options), quiet=quiet)


def resume(
    folder: str | Path,
    dataset: object,
    reward: Callable[[Row, Texts], Rewards],
    *,
    held_out: object = None,
    observe: Observe | None = None,
    done: Done | None = None,
    success: Success | None = None,
    steps: int | None = None,
    quiet: bool = False,
) -> RunResults:
    """Go on with an interrupted run of ``train`` from its last checkpoint; see there.

    ``folder`` is its run folder, which has agents and instructions. Rows must be those of the run,
    and so should the functions; ``steps`` changes its length. With more steps than it has learnt, a
    run that succeeded goes on too.

    Raises InvalidArgumentError when the run is not one of ``train``, the rows differ, or
    ``observe``, ``done`` or ``success`` is missing that the run was begun with, or is new.
    """
    functions = Functions(reward, observe, done, success)
    return _run(
        _resumed(Path(folder), TaskRows.of(dataset, held_out), functions, steps),
        quiet=quiet,
    )


async def train_async(
    agents: Agents,
    dataset: object,
    reward: Callable[[Row, Texts], Rewards],
    *,
    held_out: object = None,
    observe: Observe | None = None,
    done: Done | None = None,
    success: Success | None = None,
    runs_dir: str | Path | None = None,
    quiet: bool = False,
    **options: Any,
) -> RunResults:
    """``train`` without blocking the event loop; cancelling the task cancels the job."""
    functions = Functions(reward, observe, done, success)
    job = await asyncio.to_thread(_begun, agents, dataset, held_out, functions, runs_dir, options)
    running = asyncio.create_task(asyncio.to_thread(_run, job, quiet=quiet))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        ended = asyncio.gather(running, return_exceptions=True)  # else asyncio logs how it ended
        with suppress(TroupeError):  # the watching ends too, where no router answers
            await asyncio.to_thread(job.cancel)
        await asyncio.wait([ended])
        raise


def _begun(
    agents: Agents,
    dataset: object,
    held_out: object,
    functions: Functions,
    runs_dir: str | Path | None,
    options: dict[str, Any],
) -> "_JudgedJob":
    named = instructions(agents)
    given = training_options(options)
    rows = TaskRows.of(dataset, held_out)
    environment = CallerEnvironment(rows, named, functions, given.max_turns)
    environment.check()
    path = socket_path(secrets.token_hex(8))
    params = DatasetParams(
        socket=str(path),
        agents=named,
        num_train=len(rows.train),
        num_held_out=len(rows.held_out),
        digest=rows.digest,
        max_turns=given.max_turns,
        timeout_s=given.judge_timeout_s,
        **functions.given(),
    )
    task = {"name": TASK_NAME, "params": params.model_dump()}
    spec = job_spec(named, rows, task, given)
    folder = None if runs_dir is None else Path(runs_dir)
    return _JudgedJob(environment, path, _settings(folder), submitting(spec))


def _resumed(folder: Path, rows: TaskRows, functions: Functions, steps: int | None) -> "_JudgedJob":
    where = run_folder(folder)
    spec = load_spec(where / "spec.json")
    if spec.task.name != TASK_NAME:
        raise InvalidArgumentError(
            f"{folder} is a run of task '{spec.task.name}', which judges by itself; go on with "
            f"`troupe train --resume {folder}`"
        )
    params = DatasetParams.model_validate(spec.task.params)
    if rows.digest != params.digest:
        raise InvalidArgumentError(
            f"the rows differ from those of {folder}: a run goes on with equal ones. "
            "Give the same dataset and held_out, or begin a new run with troupe.train"
        )
    for name, is_given in functions.given().items():
        # Older versions recorded observe alone, or none.
        if spec.task.params.get(name, is_given) != is_given:
            function = name.removeprefix("has_")
            raise InvalidArgumentError(
                f"{folder} was begun {'without' if is_given else 'with'} {function}; "
                f"{'leave it out' if is_given else f'give {function}=...'}, or begin a new run "
                "with troupe.train"
            )
    environment = CallerEnvironment(rows, params.agents, functions, params.max_turns)
    environment.check()
    longer = None if steps is None else spec.model_copy(update={"steps": steps})
    document = None if longer is None else longer.model_dump(mode="json")

    def begin(client: RestClient) -> JobDocument:
        return client.resume(where.name, document)

    return _JudgedJob(environment, Path(params.socket), _settings(where.parent), begin)


@dataclass(slots=True)
class _JudgedJob:
    """A job to begin, and what this process judges for it."""

    environment: CallerEnvironment
    path: Path
    settings: CliSettings
    begin: Begin
    job_id: str = ""
    is_cancelled: bool = False

    def begin_once(self, client: RestClient) -> JobDocument:
        """Begin the job, and remember its id for ``cancel``."""
        job = self.begin(client)
        self.job_id = job.job_id
        return client.cancel(job.job_id) if self.is_cancelled else job

    def cancel(self) -> None:
        """Ask the job to end, now or when it has begun."""
        self.is_cancelled = True
        config = platform.running(self.settings.runs_dir)
        if self.job_id and config is not None:
            key = self.settings.api_key
            with config.client(api_key=key, retry_for_s=opt.RETRY_FOR_S) as client:
                client.cancel(self.job_id)


def _run(job: _JudgedJob, *, quiet: bool) -> RunResults:
    with quiet_logs(), JudgeServer(job.environment, job.path):
        ended = job_to_end(
            job.settings,
            job.begin_once,
            quiet=quiet,
            go_on=lambda folder: _call_to_resume(folder, job.environment.functions),
            is_judge=True,
        )
    if ended.state != "succeeded":
        reason = ended.error or ended.reason or "no reason was given"
        raise JobFailedError(
            f"{ended.job_id} {ended.state}: {reason} (logs: {Path(ended.run_dir) / 'logs'})"
        ) from job.environment.cause_of(reason)
    return RunResults(Path(ended.run_dir))


def _call_to_resume(folder: Path, functions: Functions) -> str:
    """The call that goes on with a run: with the functions that it was begun with."""
    names = [name.removeprefix("has_") for name, is_given in functions.given().items() if is_given]
    given = "".join(f"{name}={name}, " for name in names)
    return f"troupe.resume({str(folder)!r}, dataset, reward, {given}...)"


def _settings(runs_dir: Path | None) -> CliSettings:
    return settings_from(runs_dir=runs_dir, ports="auto")
