"""``troupe logs``, ``episodes``, ``checkpoints`` and ``download``: inspect a job's run."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from troupe.cli import options as opt
from troupe.cli.episode_tree import draw
from troupe.cli.output import EXIT_INTERRUPTED, note, out, print_json
from troupe.clients.rest import RestClient
from troupe.clients.rest.models.episodes import EpisodeRowDocument
from troupe.clients.rest.models.logs import LogPage
from troupe.errors import InvalidArgumentError, NotFoundError

episodes_app = typer.Typer(no_args_is_help=True, help="Look at recorded episodes.")
_FOLLOW_WAIT_S = 10.0

Component = Annotated[
    str | None, typer.Argument(help="trainer-0, rollout-shared-0, env-0; default: all.")
]


def logs(
    job: opt.JobArgument,
    component: Component = None,
    tail: Annotated[int, typer.Option(min=0, max=10_000, help="Last lines of each log.")] = 50,
    is_following: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow new lines until the job ends.")
    ] = False,
    url: opt.Url = None,
    runs_dir: opt.RunsDir = None,
    as_json: opt.AsJson = False,
) -> None:
    """Show the logs of a job's processes."""
    if as_json and is_following:
        raise InvalidArgumentError(
            "--json prints one document and --follow goes on; leave one of them out"
        )
    job_id = opt.job_id_of(job)
    with opt.connect(url, runs_dir) as client:  # one that restarts is waited for once it is known
        present = [file.component for file in client.logs(job_id)]
    if not present:
        raise NotFoundError(f"job {job_id} has no logs here (its processes log elsewhere)")
    with opt.connect(url, runs_dir, retry_for_s=opt.RETRY_FOR_S) as client:
        names = [component] if component else present
        pages = {name: client.log(job_id, name, tail=tail) for name in names}
        if as_json:
            print_json({name: page.model_dump() for name, page in pages.items()})
            return
        for name, page in pages.items():
            _print(name, page, is_named=len(names) > 1)
        if is_following:
            try:
                _follow(client, job_id, {n: p.next for n, p in pages.items()})
            except KeyboardInterrupt:
                raise typer.Exit(EXIT_INTERRUPTED) from None


@episodes_app.command("list")
def list_episodes(
    job: opt.JobArgument,
    step: Annotated[
        int | None,
        typer.Option(min=0, help="Episodes of this step only, from 0 as in metrics.jsonl."),
    ] = None,
    kind: Annotated[str | None, typer.Option(help="train or eval.")] = None,
    agent: Annotated[str | None, typer.Option(help="Rewards of this agent.")] = None,
    min_reward: Annotated[float | None, typer.Option(help="Least mean reward.")] = None,
    max_reward: Annotated[float | None, typer.Option(help="Greatest mean reward.")] = None,
    failure: Annotated[
        str | None, typer.Option(help="any, none, dropped, truncated or unsolved.")
    ] = None,
    order: Annotated[
        str, typer.Option(help="newest, oldest, reward_desc or reward_asc.")
    ] = "newest",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Episodes to show.")] = 20,
    url: opt.Url = None,
    runs_dir: opt.RunsDir = None,
    as_json: opt.AsJson = False,
) -> None:
    """List recorded episodes of a job."""
    filters = {
        "step": step,
        "kind": kind,
        "agent": agent,
        "min_reward": min_reward,
        "max_reward": max_reward,
        "failure": failure,
        "order": order,
        "limit": limit,
    }
    with opt.connect(url, runs_dir) as client:
        page = client.episodes(opt.job_id_of(job), **filters)
    if as_json:
        print_json(page.model_dump())
        return
    table = Table("episode", "task", "result", "turns", "return", "rewards", box=None)
    for row in page.episodes:
        table.add_row(*_cells(row))
    out().print(table if page.episodes else "no episodes match")
    note(f"{len(page.episodes)} of {page.total}; `troupe episodes show {job} EPISODE` shows one")


@episodes_app.command("show")
def show_episode(
    job: opt.JobArgument,
    episode: Annotated[str, typer.Argument(help="Id from `troupe episodes list`.")],
    is_whole: Annotated[
        bool, typer.Option("--full", help="Whole prompts and completions.")
    ] = False,
    url: opt.Url = None,
    runs_dir: opt.RunsDir = None,
    as_json: opt.AsJson = False,
) -> None:
    """Show one episode as a tree: turns, agents, and the K candidates of each."""
    with opt.connect(url, runs_dir) as client:
        document = client.episode(opt.job_id_of(job), episode)
    if as_json:
        print_json(document.model_dump())
    else:
        out().print(draw(document, is_whole=is_whole))


def checkpoints(
    job: opt.JobArgument,
    url: opt.Url = None,
    runs_dir: opt.RunsDir = None,
    as_json: opt.AsJson = False,
) -> None:
    """List what can be downloaded from a job."""
    with opt.connect(url, runs_dir) as client:
        documents = client.checkpoints(opt.job_id_of(job))
    if as_json:
        print_json([checkpoint.model_dump() for checkpoint in documents])
        return
    table = Table("checkpoint", "step", "policy", "formats", "MiB", box=None)
    for checkpoint in documents:
        for policy in checkpoint.policies:
            size = f"{policy.size_bytes / 2**20:.1f}"
            formats = ", ".join(policy.formats)
            table.add_row(checkpoint.id, str(checkpoint.step), policy.policy, formats, size)
    out().print(table if documents else "no checkpoints yet")


def download(
    job: opt.JobArgument,
    policy: Annotated[str, typer.Argument(help="Policy.")],
    checkpoint: Annotated[str, typer.Option(help="step-00012, or final.")] = "final",
    format: Annotated[str, typer.Option(help="peft, merged or state.")] = "peft",
    target: Annotated[Path | None, typer.Option("--out", help="File to write.")] = None,
    url: opt.Url = None,
    runs_dir: opt.RunsDir = None,
    as_json: opt.AsJson = False,
) -> None:
    """Download a policy as a tar archive."""
    job_id = opt.job_id_of(job)
    path = target or Path(f"{job_id}-{checkpoint}-{policy}-{format}.tar")
    with opt.connect(url, runs_dir) as client:
        client.download(job_id, checkpoint, policy, path, format=format)
    if as_json:
        print_json({"file": str(path), "size_bytes": path.stat().st_size})
    else:
        out().print(str(path))


def _cells(row: EpisodeRowDocument) -> list[str]:
    rewards = "  ".join(f"{name} {a.reward_mean:+.2f}" for name, a in row.agents.items())
    result = "solved" if row.is_success else (row.failure or "unsolved")
    return [row.id, row.task_id, result, str(row.num_turns), f"{row.team_return:.2f}", rewards]


def _follow(client: RestClient, job_id: str, places: dict[str, int]) -> None:
    """Print new lines until the job has ended and every line was shown."""
    wait_s = _FOLLOW_WAIT_S if len(places) == 1 else 0.0
    while True:
        is_over = client.job(job_id).is_over
        is_new = False
        for name, place in places.items():
            page = client.log(job_id, name, after=place, wait_s=0.0 if is_over else wait_s)
            _print(name, page, is_named=len(places) > 1)
            is_new = is_new or bool(page.lines)
            places[name] = page.next
        if is_over and not is_new:
            return
        if not is_new and wait_s == 0.0:
            time.sleep(0.5)


def _print(name: str, page: LogPage, *, is_named: bool) -> None:
    prefix = f"{name}: " if is_named else ""
    for line in page.lines:
        out().print(f"{prefix}{line}")
