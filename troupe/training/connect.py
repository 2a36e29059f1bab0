"""``troupe.connect``: the same ``train`` on a router of another machine, whose env services judge.

Owns the sequence pack, upload, submit, watch. Never starts or stops a platform.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from troupe.bundles import with_bundle
from troupe.cli import options as opt
from troupe.cli.follow import watch
from troupe.cli.output import note, quiet_logs
from troupe.cli.settings import settings_from
from troupe.clients.rest import JobDocument, RestClient
from troupe.errors import JobFailedError, UnavailableError
from troupe.training.dataset import Row, TaskRows
from troupe.training.functions import CallerEnvironment, Functions, Rewards, Texts
from troupe.training.job import Agents, instructions, job_spec, training_options
from troupe.training.packing import BUNDLED_TASK, pack
from troupe.training.remote_results import RemoteResults
from troupe.training.train import Done, Observe, Success


class Cluster:
    """A router of another machine. Made by ``troupe.connect``.

    ``close``, or a ``with`` block, ends its connections; results that it gave use them.
    """

    def __init__(self, client: RestClient, url: str) -> None:
        self.url = url
        self._client = client

    def __repr__(self) -> str:
        return f"<troupe.connect {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def train(
        self,
        agents: Agents,
        dataset: object,
        reward: Callable[[Row, Texts], Rewards],
        *,
        held_out: object = None,
        observe: Observe | None = None,
        done: Done | None = None,
        success: Success | None = None,
        files: Sequence[str | Path] = (),
        requirements: str | Path | None = None,
        quiet: bool = False,
        **options: Any,
    ) -> RemoteResults:
        """``troupe.train`` on that router; arguments as there, without ``runs_dir``.

        Rows and functions are uploaded as a bundle (docs/bundles.md) and judge in env services, so
        this process may end: ``open_run`` finds the job again. Each function must be a name of a
        file that this process imported; the file goes along as it lies on disk, with the folder of
        its outermost package.

        Args:
            agents: instructions by agent, or names alone.
            dataset: rows.
            reward: as in ``troupe.train``, and so are ``held_out``, ``observe``, ``done``,
                ``success``, ``quiet`` and ``options``. ``model`` is a hub id, or a folder there.
            held_out: see there.
            observe: see there.
            done: see there.
            success: see there.
            files: further files and folders that the functions read or import.
            requirements: list of locked packages with hashes that env services install.
            quiet: print nothing, unless the job is paused or interrupted.
            options: see there; ``judge_timeout_s`` bounds a judgement.

        Raises:
            InvalidArgumentError: an argument is wrong, a function has no file of its own, or the
                router takes no bundles.
            ForbiddenError: the key has not the scope ``code``.
            JobFailedError: the job failed or was cancelled.
            KeyboardInterrupt: interrupted; the job goes on.
        """
        named, given = instructions(agents), training_options(options)
        rows = TaskRows.of(dataset, held_out)
        functions = Functions(reward, observe, done, success)
        CallerEnvironment(rows, named, functions, given.max_turns).check()
        bundle = pack(functions, rows, files=files, requirements=requirements)
        params = {"agents": named, "digest": rows.digest, "max_turns": given.max_turns}
        task = {"name": BUNDLED_TASK, "params": params}
        spec = with_bundle(job_spec(named, rows, task, given, is_here=False), bundle)
        with quiet_logs():
            self._client.upload_bundle(bundle)
            job = self._client.submit(spec)
            return self._to_its_end(job, quiet=quiet)

    def open_run(self, job_id: str) -> RemoteResults:
        """The results of a job, also while it trains; raises NotFoundError."""
        return RemoteResults(self._client, job_id)

    def cancel(self, job_id: str) -> None:
        """Ask a job to end."""
        self._client.cancel(job_id)

    def _to_its_end(self, job: JobDocument, *, quiet: bool) -> RemoteResults:
        if not quiet:
            note(f"{job.job_id}: submitted to {self.url}")
        try:
            ended = watch(self._client, job, quiet=quiet)
        except KeyboardInterrupt:
            note(
                f"no longer watching; the job goes on. troupe.connect({self.url!r})"
                f".open_run({job.job_id!r}) reads it, .cancel({job.job_id!r}) ends it."
            )
            raise
        if ended.state != "succeeded":
            reason = ended.error or ended.reason or "no reason was given"
            raise JobFailedError(f"{ended.job_id} {ended.state}: {reason}")
        return self.open_run(ended.job_id)


def connect(url: str, api_key: str | None = None) -> Cluster:
    """A router of another machine, to train on with files of this one.

    ``api_key`` [``TROUPE_API_KEY``] needs the scope ``code``, and the router must take bundles
    (docs/bundles.md). ``TROUPE_REST_CA`` names the certificate authority of a private router.

    Raises UnavailableError when nothing answers at ``url``.

    Example::

        import rewards  # a file of mine

        run = troupe.connect("https://troupe.example").train(
            ["writer"], rows, rewards.brevity, model="Qwen/Qwen3-0.6B", steps=50
        )
    """
    settings = settings_from()
    key = settings.api_key if api_key is None else api_key
    client = RestClient(url, api_key=key, retry_for_s=opt.RETRY_FOR_S, tls_ca=settings.router_ca)
    if not client.is_up():
        client.close()
        raise UnavailableError(
            f"no router answers at {url}; check the address (its REST port is 8480 unless it was "
            "changed) and whether it is up"
        )
    return Cluster(client, url)
