"""One turn of physics as a pure function of bytes.

Equal arguments give equal bytes on one machine and one version of MuJoCo; between processors the
last digits may differ, so what is shown and paid is rounded to a millimetre.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from troupe.errors import InvalidArgumentError
from troupe_tasks.carry.scenes import AGENTS, STEP_S, TURN_S, Point, Scene, mjcf

MAX_SPEED_M_S = 2.0
"""A faster object means that the contact solver was exploited."""
_RAMP = 0.6
_STILL_M_S = 0.02
_MODELS = 256
_VIEWS = 512


@dataclass(frozen=True, slots=True)
class View:
    """What stands where, in centimetres rounded to a millimetre.

    ``ends`` are the two ends of the object along its own x axis; ``touching`` names what touches
    it; ``lid`` is the height of the lid, where there is one. ``is_broken``: something moved faster
    than robots can, or the solver warned.
    """

    pads: Mapping[str, Point]
    ends: tuple[Point, Point]
    lid: float | None
    touching: frozenset[str]
    pads_touch: bool
    is_still: bool
    is_broken: bool

    @property
    def centre(self) -> Point:
        """Centre of the object."""
        (ax, ay, az), (bx, by, bz) = self.ends
        return ((ax + bx) / 2, (ay + by) / 2, (az + bz) / 2)


def beginning(scene: Scene) -> bytes:
    """The scene's first physical state, at rest."""
    mujoco, model = _load(scene)
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data, 25)
    return _dump(mujoco, model, data)


def run_turn(
    scene: Scene, physics: bytes, aims: Mapping[str, Point], grips: Mapping[str, bool]
) -> tuple[bytes, View]:
    """Move the grippers to ``aims`` at an even speed and hold them there.

    Returns the next state and what it looks like.
    """
    mujoco, model = _load(scene)
    data = _data(mujoco, model, physics)
    steps = round(TURN_S / STEP_S)
    first = data.ctrl.copy()
    last = _controls(scene, aims, grips)
    fastest = 0.0
    chunk = 5
    for done in range(0, steps, chunk):
        share = min(1.0, (done + chunk) / (steps * _RAMP))
        data.ctrl[:] = first + share * (last - first)
        data.ctrl[[3, 7]] = last[[3, 7]]
        mujoco.mj_step(model, data, chunk)
        fastest = max(fastest, _speed(data))
    is_broken = fastest > MAX_SPEED_M_S or bool(np.any(data.warning.number))
    return _dump(mujoco, model, data), _view(mujoco, model, data, is_broken=is_broken)


@lru_cache(maxsize=_VIEWS)
def view(scene: Scene, physics: bytes) -> View:
    """What a state looks like; both robots and the judge look at each."""
    mujoco, model = _load(scene)
    data = _data(mujoco, model, physics)
    mujoco.mj_forward(model, data)
    return _view(mujoco, model, data, is_broken=False)


@lru_cache(maxsize=_MODELS)
def _load(scene: Scene) -> tuple[Any, Any]:
    try:
        import mujoco
    except ImportError as error:
        raise InvalidArgumentError(
            "the task carry needs MuJoCo; install it with pip install 'troupe[robotics]'",
            pointer="/task/name",
        ) from error
    loaded: Any = mujoco
    return loaded, loaded.MjModel.from_xml_string(mjcf(scene))


def _data(mujoco: Any, model: Any, physics: bytes) -> Any:
    data = mujoco.MjData(model)
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    numbers = np.frombuffer(physics)
    if numbers.size != mujoco.mj_stateSize(model, kind) or not np.isfinite(numbers).all():
        raise InvalidArgumentError("a state of carry is damaged; replay the episode")
    mujoco.mj_setState(model, data, numbers, kind)
    return data


def _dump(mujoco: Any, model: Any, data: Any) -> bytes:
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    numbers = np.empty(mujoco.mj_stateSize(model, kind))
    mujoco.mj_getState(model, data, numbers, kind)
    return numbers.tobytes()


def _controls(scene: Scene, aims: Mapping[str, Point], grips: Mapping[str, bool]) -> Any:
    numbers: list[float] = []
    for name in AGENTS:
        home = scene.homes[name]
        numbers += [(aim - at) / 100 for aim, at in zip(aims[name], home, strict=True)]
        numbers.append(float(grips[name]))
    return np.array(numbers)


def _speed(data: Any) -> float:
    return float(np.abs(data.joint("object").qvel[:3]).max())


def _view(mujoco: Any, model: Any, data: Any, *, is_broken: bool) -> View:
    names = {index: model.geom(index).name for index in range(model.ngeom)}
    pairs = {frozenset((names[contact.geom1], names[contact.geom2])) for contact in data.contact}
    body = data.body("object")
    axis = body.xmat.reshape(3, 3)[:, 0] * model.geom("object").size[0]
    ends = (_cm(body.xpos - axis), _cm(body.xpos + axis))
    has_lid = "lid" in names.values()
    velocity = data.joint("object").qvel
    return View(
        pads={name: _cm(data.body(name).xpos) for name in AGENTS},
        ends=ends,
        lid=round(100 * float(data.body("lid").xpos[2]), 1) if has_lid else None,
        touching=frozenset(n for pair in pairs if "object" in pair for n in pair - {"object"}),
        pads_touch=frozenset(AGENTS) in pairs,
        is_still=bool(np.abs(velocity[:3]).max() < _STILL_M_S),
        is_broken=is_broken,
    )


def _cm(metres: Any) -> Point:
    x, y, z = (round(100 * float(length), 1) + 0.0 for length in metres)
    return (x, y, z)
