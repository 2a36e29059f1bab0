"""The step ledger as a small state machine: conductors, workers and trainers over one Redis.

Two conductors and two trainers each take a turn; the first of each may die or fall asleep anywhere
and act again after the second has begun. One command may be executed a second time at any later
moment, and one entry of the groups stream may be doubled. Each ``GUARDS`` name is one check of the
real code; a model without it must break.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from protocol_search import Model

GUARDS = frozenset(
    {
        "open once",  # EXISTS in OPEN_ROUND
        "first",  # first() in COMPLETE_TICKET
        "commit forward",  # the comparison in COMMIT_VERSION
        "ack covered",  # ack_below(covered), not below what was learnt
        "dedupe",  # known group_ids in the collector
        "keep unreadable",  # an unreadable group stays pending until it is covered
        "conductor epoch",  # FENCE in OPEN_ROUND and MARK_RECORDED, check() before files
        "ack epoch",  # FENCE in the trainer's XACK
    }
)
UNREADABLE = (0, 0)
"""The group that nobody can read: it is counted in its round and trained by nobody."""

Group = tuple[int, int]
T = TypeVar("T")


class Round(NamedTuple):
    """The ledger's hash of a round. ``episodes`` are deleted when it is recorded."""

    done: frozenset[int] = frozenset()
    num_done: int = 0
    num_groups: int = 0
    episodes: int = 0
    is_recorded: bool = False


class Trainer(NamedTuple):
    """What is in a trainer's memory; ``is_admitted``: it asked and is about to rename."""

    step: int
    trained: tuple[tuple[Group, ...], ...]
    phase: str
    covered: int
    is_admitted: bool = False
    unreadable: int = 0


class State(NamedTuple):
    """Redis, the disk, and every process. A conductor is what it decided to do, or None."""

    rounds: tuple[Round | None, ...]
    tickets: tuple[Group, ...] = ()
    plays: tuple[Group, ...] = ()
    stream: tuple[Group, ...] = ()
    version: int = -1
    checkpoint: tuple[tuple[Group, ...], ...] = ()
    book: tuple[int, ...] = ()
    trainers: tuple[Trainer | str, ...] = ("waits", "waits")
    conductors: tuple[tuple[str, int] | str, ...] = ("waits", "waits")
    ghost: tuple[str, int, int] | None = None
    ghosts_left: int = 1
    doubles_left: int = 1


def ledger_model(
    guards: frozenset[str] = GUARDS,
    *,
    steps: int = 2,
    tickets: int = 1,
    conductors: int = 2,
    trainers: int = 2,
    ghosts: int = 1,
    doubles: int = 1,
) -> Model[State]:
    """A job of ``steps`` training steps with ``tickets`` tickets each, one group a ticket.

    One conductor or trainer never dies; with two, the first one may.
    """
    world = _World(guards, steps, tickets)
    initial = State(
        (None,) * steps,
        book=(0,) * steps,
        trainers=("waits" if trainers == 2 else "dead", "waits"),
        conductors=("waits" if conductors == 2 else "dead", "waits"),
        ghosts_left=ghosts,
        doubles_left=doubles,
    )
    return Model(initial, world.events, world.wrong, world.is_done, world.must_end)


class _World:
    def __init__(self, guards: frozenset[str], steps: int, tickets: int) -> None:
        self.guards, self.steps, self.tickets = guards, steps, tickets

    def events(self, s: State) -> Iterator[tuple[str, State]]:
        for who in range(2):
            yield from self._conductor(s, who)
            yield from self._trainer(s, who)
        yield from self._workers(s)
        if s.ghost is not None:
            kind, one, two = s.ghost
            after = getattr(self, f"_{kind}")(s._replace(ghost=None), one, two)
            yield f"{kind} {one} {two} once more", after
        if s.doubles_left:
            for group in dict.fromkeys(s.stream):
                doubled = tuple(sorted((*s.stream, group)))
                yield f"entry {group} doubled", s._replace(stream=doubled, doubles_left=0)

    def _sent(self, s: State, kind: str, one: int, two: int) -> Iterator[tuple[str, State]]:
        """A command takes effect; perhaps it will once more, when its sender gave up on it."""
        after = getattr(self, f"_{kind}")(s, one, two)
        yield f"{kind} {one} {two}", after
        if s.ghosts_left and s.ghost is None:
            yield (
                f"{kind} {one} {two}, to come again",
                after._replace(ghost=(kind, one, two), ghosts_left=s.ghosts_left - 1),
            )

    # Commands of Redis, each atomic.

    def _open(self, s: State, step: int, who: int) -> State:
        if self._is_old(s.conductors, who, "conductor epoch"):
            return s
        if s.rounds[step] is not None and "open once" in self.guards:
            return s
        new = tuple((step, i) for i in range(self.tickets))
        rounds = _with(s.rounds, step, Round())
        return s._replace(rounds=rounds, tickets=tuple(sorted(s.tickets + new)))

    def _complete(self, s: State, step: int, ticket: int) -> State:
        round_ = s.rounds[step]
        tickets = tuple(t for t in s.tickets if t != (step, ticket))
        if round_ is None:
            return s._replace(tickets=tickets)
        is_first = ticket not in round_.done and not self._is_complete(round_)
        if "first" in self.guards and not is_first:
            return s._replace(tickets=tickets)
        round_ = round_._replace(
            done=round_.done | {ticket},
            num_done=round_.num_done + 1,
            num_groups=round_.num_groups + 1,
            episodes=round_.episodes + 1,
        )
        stream = tuple(sorted((*s.stream, (step, ticket))))
        rounds = _with(s.rounds, step, round_)
        return s._replace(rounds=rounds, tickets=tickets, stream=stream)

    def _commit(self, s: State, version: int, who: int) -> State:
        _ = who
        if version < s.version and "commit forward" in self.guards:
            return s
        return s._replace(version=version)

    def _ack(self, s: State, below: int, who: int) -> State:
        if self._is_old(s.trainers, who, "ack epoch"):
            return s
        return s._replace(stream=tuple(g for g in s.stream if g[0] >= below))

    # Processes.

    def _conductor(self, s: State, who: int) -> Iterator[tuple[str, State]]:
        def become(what: tuple[str, int] | str, state: State = s) -> State:
            return state._replace(conductors=_with(state.conductors, who, what))

        it = s.conductors[who]
        if it == "waits" and (who == 0 or s.conductors[0] != "waits"):
            yield f"conductor {who} begins", become("looks")
        if it in ("waits", "dead"):
            return
        if who == 0:
            yield "conductor 0 dies", become("dead")
        if it == "looks":
            step = s.version
            if 0 <= step < self.steps and s.rounds[step] is None:
                yield f"conductor {who} sees no round {step}", become(("open", step))
            for step, round_ in enumerate(s.rounds):
                if round_ and self._is_complete(round_) and not round_.is_recorded:
                    yield f"conductor {who} sees round {step} complete", become(("write", step))
            return
        assert isinstance(it, tuple)
        what, step = it
        is_old = self._is_old(s.conductors, who, "conductor epoch")
        if what == "open":
            for name, after in self._sent(s, "open", step, who):
                yield f"conductor {who}: {name}", become("dead" if is_old else "looks", after)
        round_ = s.rounds[step]
        if what == "write" and round_ is not None:
            after = s if is_old else s._replace(book=_with(s.book, step, round_.episodes))
            yield (
                f"conductor {who} writes {step}",
                become("dead" if is_old else ("mark", step), after),
            )
        if what == "mark" and round_ is not None:
            marked = round_._replace(is_recorded=True, episodes=0)
            after = s if is_old else s._replace(rounds=_with(s.rounds, step, marked))
            yield f"conductor {who} marks {step}", become("dead" if is_old else "looks", after)

    def _workers(self, s: State) -> Iterator[tuple[str, State]]:
        for step, ticket in dict.fromkeys(s.tickets):
            if s.plays.count((step, ticket)) < 2:  # the second one claimed it from the first
                plays = tuple(sorted((*s.plays, (step, ticket))))
                yield f"a worker takes {step}/{ticket}", s._replace(plays=plays)
        for step, ticket in dict.fromkeys(s.plays):
            left = list(s.plays)
            left.remove((step, ticket))
            ended = s._replace(plays=tuple(left))
            yield from self._sent(ended, "complete", step, ticket)

    def _trainer(self, s: State, who: int) -> Iterator[tuple[str, State]]:
        def become(it: Trainer | str, state: State = s) -> State:
            return state._replace(trainers=_with(state.trainers, who, it))

        it, name = s.trainers[who], f"trainer {who}"
        if it == "waits" and (who == 0 or s.trainers[0] != "waits"):
            reached = len(s.checkpoint)
            yield f"{name} begins", become(Trainer(reached, s.checkpoint, "commit", reached))
        if not isinstance(it, Trainer):
            return
        if who == 0:
            yield f"{name} dies", become("dead")
        if it.is_admitted:  # the newest is what is read
            saved = it._replace(is_admitted=False, covered=it.step)
            newest = max(s.checkpoint, it.trained, key=len)
            yield f"{name} renames", become(saved, s._replace(checkpoint=newest))
        elif it.step > it.covered and not self._is_taken_over(s.trainers, who):
            yield f"{name} may write checkpoint {it.step}", become(it._replace(is_admitted=True))
        if it.is_admitted:
            return
        if it.phase == "commit":
            acks = it._replace(phase="ack")
            if it.step < s.version:
                yield f"{name} is behind", become(acks)
            elif not self._is_taken_over(
                s.trainers, who
            ):  # the script's check is `publish_model`'s
                for event, after in self._sent(s, "commit", it.step, who):
                    yield f"{name}: {event}", become(acks, after)
        elif it.phase == "ack":
            below = it.covered if "ack covered" in self.guards else it.step
            for event, after in self._sent(s, "ack", below, who):
                yield f"{name}: {event}", become(it._replace(phase="collect"), after)
        elif it.step < self.steps:
            yield from self._collect(s, who, it)

    def _collect(self, s: State, who: int, it: Trainer) -> Iterator[tuple[str, State]]:
        """Take the groups of a step, once all that the ledger counts are there."""
        round_, name = s.rounds[it.step], f"trainer {who}"
        if "keep unreadable" not in self.guards and UNREADABLE in s.stream:
            left = tuple(g for g in s.stream if g != UNREADABLE)
            counted = _with(s.trainers, who, it._replace(unreadable=1))
            yield f"{name} drops an entry", s._replace(stream=left, trainers=counted)
        if round_ is None or not self._is_complete(round_):
            return
        there = [g for g in s.stream if g[0] == it.step]
        counted = len(set(there)) + (it.unreadable if it.step == UNREADABLE[0] else 0)
        if counted < round_.num_groups:
            return
        batch = tuple(g for g in there if g != UNREADABLE)
        batch = tuple(dict.fromkeys(batch)) if "dedupe" in self.guards else batch
        learnt = Trainer(it.step + 1, (*it.trained, batch), "commit", it.covered)
        after = s._replace(trainers=_with(s.trainers, who, learnt))
        yield f"{name} learns step {it.step}", after

    # What must hold.

    def wrong(self, before: State, event: str, s: State) -> str:
        _ = event
        if s.version < before.version:
            return "the committed version went back"
        for step, trained in enumerate(s.checkpoint):
            if trained != self._trainable(step):
                return f"step {step} was trained with {trained}"
        for step, round_ in enumerate(s.rounds):
            if round_ is None:
                continue
            if round_.num_groups != len(round_.done):
                return f"round {step} counts {round_.num_groups} groups of {len(round_.done)}"
            if round_.is_recorded and s.book[step] != self.tickets:
                return f"round {step} is recorded with {s.book[step]} episodes"
            if step >= self._needed(s) and any((step, i) not in s.stream for i in round_.done):
                return f"a group of step {step} is lost"
        return ""

    def is_done(self, s: State) -> bool:
        return s.version == self.steps and all(r is not None and r.is_recorded for r in s.rounds)

    def must_end(self, s: State) -> bool:
        return True  # the second conductor and the second trainer never die

    def _needed(self, s: State) -> int:
        """Groups from this step on will be asked for again."""
        current = next((t for t in reversed(s.trainers) if t != "waits"), None)
        return current.step if isinstance(current, Trainer) else len(s.checkpoint)

    def _trainable(self, step: int) -> tuple[Group, ...]:
        groups = ((step, i) for i in range(self.tickets))
        return tuple(g for g in groups if g != UNREADABLE)

    def _is_complete(self, round_: Round) -> bool:
        return round_.num_done >= self.tickets

    def _is_old(self, turns: tuple[object, ...], who: int, guard: str) -> bool:
        return guard in self.guards and self._is_taken_over(turns, who)

    def _is_taken_over(self, turns: tuple[object, ...], who: int) -> bool:
        return who == 0 and turns[1] != "waits"


def _with(items: tuple[T, ...], at: int, item: T) -> tuple[T, ...]:
    return (*items[:at], item, *items[at + 1 :])
