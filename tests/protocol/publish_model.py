"""The publish protocol as a small state machine: two replicas, two trainers, two versions.

A trainer stages on every replica, activates on every replica, commits, learns the next version. The
first trainer may die or fall asleep anywhere and act again after the second has begun; a replica
may restart and come back with nothing but its base model; a staged version's lease may end; calls
may take effect once more later. Learning again gives other bits: a set of weights is (version,
trainer). Each ``GUARDS`` name is one check of the real code; a model without it must break.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from protocol_search import Model

GUARDS = frozenset(
    {
        "stage on all",  # Publisher: nobody activates before everybody has staged
        "check forward",  # VersionTable.check_forward
        "catch up",  # Versions: nothing below the committed version is published
        "commit epoch",  # FENCE in COMMIT_VERSION
        "replica epoch",  # WeightsIntake._refuse_older
        "epoch at join",  # Assignment.trainer_epoch
        "tell all",  # Delivery activates also where the version serves already
        "one digest",  # COMMIT_VERSION refuses other weights under one number
        "keep committed",  # Versions._as_committed publishes the committed file
        "evict lowest",  # VersionTable.activate: not what was activated least recently
        "meant digest",  # WeightsIntake._check_meant
    }
)

Weights = tuple[int, int]
"""A version, and who learnt it. Version 0 is the model as the job found it: nobody's."""

T = TypeVar("T")


class Replica(NamedTuple):
    """``is_fresh``: nothing was activated in its life; ``is_late``: no commit waited for it."""

    active: int = -1
    loaded: tuple[Weights, ...] = ()
    staged: tuple[Weights, ...] = ()
    epoch: int = -1
    is_fresh: bool = True
    is_late: bool = True

    def has(self, weights: Weights) -> bool:
        """It could serve these."""
        return weights in self.loaded or weights in self.staged


class Trainer(NamedTuple):
    """``staged`` and ``active`` are the replicas that it saw so, in the lives that they are in."""

    weights: Weights
    phase: str = "stage"
    staged: frozenset[int] = frozenset()
    active: frozenset[int] = frozenset()


class State(NamedTuple):
    """The ledger's version and weights, the disk, and every process."""

    committed: Weights | None = None
    checkpoint: Weights = (0, 0)
    files: frozenset[Weights] = frozenset()
    replicas: tuple[Replica, ...] = (Replica(), Replica())
    trainers: tuple[Trainer | str, ...] = ("waits", "waits")
    ghosts: tuple[tuple[str, int, Weights, int], ...] = ()
    ghosts_left: int = 0
    restarts_left: int = 1
    expiries_left: int = 1


def publish_model(
    guards: frozenset[str] = GUARDS,
    *,
    versions: int = 1,
    trainers: int = 2,
    ghosts: int = 0,
    restarts: int = 1,
    expiries: int = 0,
    only_ledger: bool = False,
) -> Model[State]:
    """A job of ``versions`` learnt versions. With two trainers the first one may die or sleep.

    ``only_ledger``: look at what is committed, and not at replicas.
    """
    world = _World(guards, versions)
    initial = State(
        trainers=("waits" if trainers == 2 else "dead", "waits"),
        ghosts_left=ghosts,
        restarts_left=restarts,
        expiries_left=expiries,
    )
    wrong = world.wrong_commit if only_ledger else world.wrong
    return Model(initial, world.events, wrong, world.is_done, lambda _: not only_ledger)


class _World:
    def __init__(self, guards: frozenset[str], versions: int) -> None:
        self.guards, self.versions = guards, versions

    def events(self, s: State) -> Iterator[tuple[str, State]]:
        for who in range(2):
            yield from self._trainer(s, who)
        for i, replica in enumerate(s.replicas):
            if s.restarts_left and not replica.is_fresh:
                yield f"replica {i} restarts", self._restarted(s, i)
            if s.expiries_left and replica.staged:
                lost = _with(s.replicas, i, replica._replace(staged=(), is_late=True))
                yield f"lease on {i} ends", s._replace(replicas=lost, expiries_left=0)
        for ghost in dict.fromkeys(s.ghosts):
            left = list(s.ghosts)
            left.remove(ghost)
            kind, i, weights, who = ghost
            after, _ = self._call(s._replace(ghosts=tuple(left)), kind, i, weights, who)
            yield f"{kind} {weights} on {i} by {who} once more", after

    def _restarted(self, s: State, i: int) -> State:
        begun = [who for who, it in enumerate(s.trainers) if it != "waits"]
        epoch = max(begun, default=-1) if "epoch at join" in self.guards else -1
        trainers = tuple(
            it._replace(staged=it.staged - {i}, active=it.active - {i})
            if isinstance(it, Trainer)
            else it
            for it in s.trainers
        )
        replicas = _with(s.replicas, i, Replica(epoch=epoch))
        return s._replace(replicas=replicas, trainers=trainers, restarts_left=s.restarts_left - 1)

    # What a replica does with a call; whether it took it, and whether it refused for good.

    def _call(self, s: State, kind: str, i: int, weights: Weights, who: int) -> tuple[State, str]:
        replica, version = s.replicas[i], weights[0]
        if who < replica.epoch and "replica epoch" in self.guards:
            return s, "fenced"
        replica = replica._replace(epoch=max(who, replica.epoch))
        answer = "done"
        if version < replica.active - 1 and "check forward" in self.guards:
            answer = "old"
        elif kind == "stage":
            others = tuple(w for w in replica.staged if w[0] != version)
            replica = replica._replace(staged=tuple(sorted((*others, weights))))
        else:
            replica, answer = self._activated(replica, weights)
        return s._replace(replicas=_with(s.replicas, i, replica)), answer

    def _activated(self, replica: Replica, weights: Weights) -> tuple[Replica, str]:
        """The staged version goes before the loaded one."""
        version = weights[0]
        staged = [w for w in replica.staged if w[0] == version]
        loaded = [w for w in replica.loaded if w[0] == version]
        if not staged and not loaded:
            return replica, "not loaded"
        if "meant digest" in self.guards and (staged or loaded)[0] != weights:
            return replica, "not loaded"
        others = tuple(w for w in replica.loaded if w[0] != version)
        if "evict lowest" in self.guards:
            others = tuple(sorted(others))
        return replica._replace(
            active=version,
            loaded=(*others[-1:], (staged or loaded)[0]),
            staged=tuple(w for w in replica.staged if w[0] != version),
            is_fresh=False,
        ), "done"

    def _trainer(self, s: State, who: int) -> Iterator[tuple[str, State]]:
        def become(it: Trainer | str, state: State = s) -> State:
            return state._replace(trainers=_with(state.trainers, who, it))

        it, name = s.trainers[who], f"trainer {who}"
        if it == "waits" and (who == 0 or s.trainers[0] != "waits"):
            yield f"{name} begins", become(self._ready(s, Trainer(s.checkpoint)))
        if not isinstance(it, Trainer):
            return
        if who == 0:
            yield f"{name} dies", become("dead")
        if it.weights[0] > s.checkpoint[0] and not self._is_taken_over(s, who):
            yield f"{name} writes its checkpoint", s._replace(checkpoint=it.weights)
        if it.phase in ("stage", "activate"):
            yield from self._publish(s, who, it)
        elif it.phase == "commit":
            yield f"{name} commits {it.weights}", self._commit(s, who, it)
        elif it.phase == "learn" and it.weights[0] < self.versions:
            learnt = Trainer((it.weights[0] + 1, who + 1))
            yield f"{name} learns", become(self._ready(s, learnt))
        elif it.phase == "learn":
            for i in sorted({0, 1} - it.active):  # watch(): a late one gets it too
                yield from self._sent(s, who, it, "stage" if i not in it.staged else "activate", i)

    def _ready(self, s: State, it: Trainer) -> Trainer:
        """What a trainer is about to publish, if anything."""
        if s.committed is None:
            return it
        if it.weights[0] < s.committed[0] and "catch up" in self.guards:
            return it._replace(phase="learn")
        is_same_number = it.weights[0] == s.committed[0]
        if is_same_number and "keep committed" in self.guards and s.committed in s.files:
            return it._replace(weights=s.committed)
        return it

    def _publish(self, s: State, who: int, it: Trainer) -> Iterator[tuple[str, State]]:
        ready = s._replace(files=s.files | {it.weights})
        if it.phase == "stage":
            for i in sorted({0, 1} - it.staged):
                if self._serves(s.replicas[i], it.weights):
                    seen = it._replace(staged=it.staged | {i})
                    yield (
                        f"{i} serves {it.weights}",
                        ready._replace(trainers=_with(s.trainers, who, seen)),
                    )
                else:
                    yield from self._sent(ready, who, it, "stage", i)
            if it.staged and (len(it.staged) == 2 or "stage on all" not in self.guards):
                onward = it._replace(phase="activate")
                yield (
                    f"trainer {who} activates",
                    s._replace(trainers=_with(s.trainers, who, onward)),
                )
        if it.phase == "activate":
            for i in sorted({0, 1} - it.active):
                if i not in it.staged:
                    yield from self._sent(ready, who, it, "stage", i)
                elif self._serves(s.replicas[i], it.weights) and "tell all" not in self.guards:
                    seen = it._replace(active=it.active | {i})
                    yield f"{i} is not told", s._replace(trainers=_with(s.trainers, who, seen))
                else:
                    yield from self._sent(s, who, it, "activate", i)
            if len(it.active) == 2:
                onward = it._replace(phase="commit")
                yield f"trainer {who} has all", s._replace(trainers=_with(s.trainers, who, onward))

    def _sent(
        self, s: State, who: int, it: Trainer, kind: str, i: int
    ) -> Iterator[tuple[str, State]]:
        after, answer = self._call(s, kind, i, it.weights, who)
        if answer in ("fenced", "old"):
            now: Trainer | str = "dead"
        elif answer == "not loaded":
            now = it._replace(staged=it.staged - {i})
        elif kind == "stage":
            now = it._replace(staged=it.staged | {i})
        else:
            now = it._replace(active=it.active | {i})
        after = after._replace(trainers=_with(s.trainers, who, now))
        event = f"{kind} {it.weights} on {i} by {who}"
        yield f"{event}: {answer}", after
        if s.ghosts_left:
            ghosts = tuple(sorted((*s.ghosts, (kind, i, it.weights, who))))
            yield (
                f"{event}: {answer}, to come again",
                after._replace(ghosts=ghosts, ghosts_left=s.ghosts_left - 1),
            )

    def _commit(self, s: State, who: int, it: Trainer) -> State:
        if self._is_taken_over(s, who) and "commit epoch" in self.guards:
            return s._replace(trainers=_with(s.trainers, who, "dead"))
        old = s.committed
        is_other = old is not None and old[0] == it.weights[0] and old != it.weights
        is_lower = old is not None and old[0] > it.weights[0]
        if is_lower or (is_other and "one digest" in self.guards):
            return s._replace(trainers=_with(s.trainers, who, "dead"))
        onward = it._replace(phase="learn")
        replicas = tuple(r._replace(is_late=it.weights not in r.loaded) for r in s.replicas)
        trainers = _with(s.trainers, who, onward)
        return s._replace(committed=it.weights, replicas=replicas, trainers=trainers)

    def _serves(self, replica: Replica, weights: Weights) -> bool:
        return replica.active == weights[0] and weights in replica.loaded

    def _is_taken_over(self, s: State, who: int) -> bool:
        return who == 0 and s.trainers[1] != "waits"

    # What must hold.

    def wrong_commit(self, before: State, event: str, s: State) -> str:
        _ = event
        old, new = before.committed, s.committed
        if old is not None and new is not None and old != new and new[0] <= old[0]:
            return f"version {old[0]} was committed as {old} and then came {new}"
        return ""

    def wrong(self, before: State, event: str, s: State) -> str:
        if problem := self.wrong_commit(before, event, s):
            return problem
        for i, (was, now) in enumerate(zip(before.replicas, s.replicas, strict=True)):
            if now.is_fresh or now == was:
                continue
            if now.active < was.active - 1:
                return f"replica {i} went back from {was.active} to {now.active}"
            if now.active != was.active and event.startswith("activate"):
                (weights,) = (w for w in now.loaded if w[0] == now.active)
                for other in s.replicas:
                    if now.active > was.active and not other.is_late and not other.has(weights):
                        return f"{weights} serves on {i} before every replica has it"
        return self._wrong_weights(s)

    def _wrong_weights(self, s: State) -> str:
        """Whoever asks for the committed version gets the committed weights, and gets them."""
        for i, replica in enumerate(s.replicas):
            held = {w for w in replica.loaded if s.committed and w[0] == s.committed[0]}
            if held - {s.committed}:
                return f"{s.committed} is committed and replica {i} samples from {held}"
            if s.committed and not replica.is_late and not held:
                return f"{s.committed} is committed and replica {i} does not have it"
        return ""

    def is_done(self, s: State) -> bool:
        return s.committed is not None and s.committed[0] == self.versions


def _with(items: tuple[T, ...], at: int, item: T) -> tuple[T, ...]:
    return (*items[:at], item, *items[at + 1 :])
