"""Draws an episode as a tree in the terminal. Pure: never calls a router."""

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.text import Text
from rich.tree import Tree

from troupe.clients.rest.models.episode_tree import (
    CandidateDocument,
    EpisodeDocument,
    GroupDocument,
)

_SHORT = 160


def draw(episode: EpisodeDocument, *, is_whole: bool = False) -> RenderableType:
    """A tree of turns, agents and candidates; marks the chosen candidate and its reward terms.

    Model output is shown verbatim, never parsed as markup.
    """
    result = "solved" if episode.is_success else (episode.failure or "unsolved")
    head = Text(f"{episode.id}  {episode.task_id}  ")
    head.append(result, style="green" if episode.is_success else "red")
    head.append(f"  return {episode.team_return:.3f}  {episode.num_tokens} tokens", style="dim")
    tree = Tree(head)
    for turn in episode.turns:
        branch = tree.add(Text(f"turn {turn.turn}", style="bold"))
        for group in turn.groups:
            _add_group(branch, group, is_whole=is_whole)
    if episode.dropped_reason:
        tree.add(Text(f"dropped: {episode.dropped_reason}", style="red"))
    return tree


def _add_group(tree: Tree, group: GroupDocument, *, is_whole: bool) -> None:
    label = Text(group.agent, style="cyan")
    label.append(
        f"  {group.policy} v{group.policy_version}  mean {group.reward_mean:+.3f} "
        f"std {group.reward_std:.3f}" + ("  flat" if group.is_flat else ""),
        style="dim",
    )
    branch = tree.add(label)
    if is_whole:
        for prompt in group.prompts:
            for message in prompt:
                branch.add(Text(f"[{message.role}] {message.content}", style="dim"))
    for candidate in group.candidates:
        branch.add(_candidate(candidate, is_whole=is_whole))


def _candidate(candidate: CandidateDocument, *, is_whole: bool) -> RenderableType:
    line = Text("* " if candidate.is_chosen else "  ", style="bold green")
    line.append(f"{candidate.index} ", style="bold" if candidate.is_chosen else "")
    line.append(f"{candidate.reward:+.3f}", style="green" if candidate.is_success else "")
    if candidate.advantage is not None:
        line.append(f" A {candidate.advantage:+.2f}", style="magenta")
    parts = " ".join(f"{p.term} {p.contribution:+.2f}" for p in candidate.reward_parts)
    line.append(f"  ({parts})", style="dim")
    if candidate.is_truncated:
        line.append("  cut off", style="yellow")
    text = candidate.text if is_whole else _shortened(candidate.text)
    return Stack(line, Text(text if is_whole else f"  {text}"))


def _shortened(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHORT else f"{flat[:_SHORT]}..."
