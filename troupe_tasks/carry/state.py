"""One moment of an episode of carry, as bytes."""

import base64
import json
from dataclasses import dataclass, field

from troupe_tasks.carry.commands import WAIT, Command
from troupe_tasks.carry.scenes import AGENTS, Point, Scene, scene_of

_START_NEAR = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class State:
    """The scene, the physics, what the robots were last told, and what has been paid.

    ``pending`` is alice's command of this turn; ``best`` the largest progress so far, ``near`` each
    robot's best approach; ``outcome`` is empty while the episode goes on, else ``placed`` or
    ``broken``.
    """

    scene: Scene
    physics: bytes
    aims: dict[str, Point]
    grips: dict[str, bool]
    pending: Command | None = None
    best: float = 0.0
    near: dict[str, float] = field(
        default_factory=lambda: dict(zip(AGENTS, _START_NEAR, strict=True))
    )
    outcome: str = ""


def encode_state(state: State) -> bytes:
    """Opaque state bytes, about 1.3 KiB; ``decode_state`` is the inverse."""
    pending = state.pending
    document = {
        "scene": state.scene.payload().decode(),
        "physics": base64.b64encode(state.physics).decode(),
        "aims": state.aims,
        "grips": state.grips,
        "pending": None if pending is None else [pending.aim, pending.grip],
        "best": state.best,
        "near": state.near,
        "outcome": state.outcome,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode_state(data: bytes) -> State:
    """The state that ``encode_state`` wrote."""
    raw = json.loads(data)
    pending = raw["pending"]
    return State(
        scene=scene_of(raw["scene"].encode()),
        physics=base64.b64decode(raw["physics"]),
        aims={name: tuple(raw["aims"][name]) for name in AGENTS},
        grips={name: bool(raw["grips"][name]) for name in AGENTS},
        pending=None if pending is None else _command(*pending),
        best=raw["best"],
        near=raw["near"],
        outcome=raw["outcome"],
    )


def _command(aim: list[float] | None, grip: bool | None) -> Command:
    if aim is None and grip is None:
        return WAIT
    return Command(None if aim is None else (aim[0], aim[1], aim[2]), grip)
