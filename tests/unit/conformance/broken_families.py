"""Task families that each break one promise, for a kit that must notice it.

``Counting`` keeps them all: two agents count up to a goal, one number at a time.
"""

import hashlib
import json
import random
import time
from random import Random
from types import SimpleNamespace
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from troupe.errors import InvalidArgumentError
from troupe.tasks.content import ImagePart
from troupe.tasks.family import BoundedObservation, Message, Task, Transition
from troupe.tasks.splits import DrawnTaskset, split_of_key
from troupe.tasks.tool_calls import Tool, ToolCall

LEFT, RIGHT = "left", "right"
GLOBAL = SimpleNamespace(num_steps=0)


class Params(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = 0


class CountingEnvironment:
    def reset(self, task):
        return task.payload

    def observe(self, state, agent):
        _known(agent)
        now = json.loads(state)
        return (
            Message(
                "user",
                f"{now['at']} of {now['goal']} in game {now.get('salt')}, {agent}: "
                "say what comes next, for example: say 77",
            ),
        )

    def step(self, state, agent, action):
        _known(agent)
        now = json.loads(state)
        is_over = now["at"] == now["goal"]
        is_right = not is_over and action == f"say {now['at'] + 1}"
        after = {**now, "at": now["at"] + is_right}
        is_done = after["at"] == after["goal"]
        return Transition(
            json.dumps(after).encode(),
            1.0 if is_right and is_done else 0.0,
            {"right": float(is_right)},
            is_done,
            is_done,
            {"at": after["at"]},
        )


class Counting:
    name = "counting"
    agents = (LEFT, RIGHT)
    Params = Params
    local_terms: ClassVar = {LEFT: {"right": 0.5}, RIGHT: {"right": 0.5}}
    return_bound = 1.0

    def __init__(self, params):
        self._params = params

    def taskset(self):
        return DrawnTaskset(self.name, self._params.seed, self.draw, hint="none")

    def draw(self, rng, split):
        goal, salt = rng.randint(2, 6), rng.randrange(10**6)
        if split_of_key(f"{goal} {salt}") != split:
            return None
        return json.dumps({"at": 0, "goal": goal, "salt": salt}).encode()

    def environment(self):
        return CountingEnvironment()

    def demonstrate(self, state, agent, rng):
        return f"say {json.loads(state)['at'] + 1}"

    def random_action(self, state, agent, rng):
        return f"say {rng.randint(1, 9)}"

    def vocabulary(self):
        return ["say", *(str(n) for n in range(10))]


def _known(agent):
    if agent not in (LEFT, RIGHT):
        raise InvalidArgumentError(f"no agent {agent}")


def _with_step(change):
    """A family whose transitions go through ``change(env, state, agent, action, t)``."""

    class Changed(CountingEnvironment):
        def step(self, state, agent, action):
            return change(self, state, agent, action, super().step(state, agent, action))

    class Family(Counting):
        def environment(self):
            return Changed()

    return Family


def _replaced(t, **values):
    fields = {name: getattr(t, name) for name in t.__dataclass_fields__}
    return Transition(**{**fields, **values})


def _global_state(env, state, agent, action, t):
    GLOBAL.num_steps += 1
    return _replaced(t, info={"at": GLOBAL.num_steps})


def _own_state(env, state, agent, action, t):
    env.num_steps = getattr(env, "num_steps", 0) + 1
    return _replaced(t, local_rewards={"right": 1.0 / env.num_steps})


def _random_reward(env, state, agent, action, t):
    return _replaced(t, local_rewards={"right": random.random()})


def _hash_order(env, state, agent, action, t):
    return _replaced(t, info={"order": hash(action) % 1000})


def _farmable(env, state, agent, action, t):
    return _replaced(t, team_reward=t.team_reward + 0.2 * ("say" in action))


def _pays_the_example(env, state, agent, action, t):
    return _replaced(t, local_rewards={"right": 3.0 if "77" in action else 0.5})


def _raises_on_odd_digits(env, state, agent, action, t):
    # isdigit() is true for a superscript two, and int() refuses it.
    numbers = [int(word) for word in action.split() if word.isdigit()]
    return _replaced(t, info={"numbers": len(numbers)})


def _exits_on_empty_text(env, state, agent, action, t):
    if not action:
        raise SystemExit(0)
    return t


def _slow_on_long_text(env, state, agent, action, t):
    if len(action) > 500_000:
        time.sleep(0.15)
    return t


def _slow(env, state, agent, action, t):
    time.sleep(0.02)
    return t


def _hangs_on_empty_text(env, state, agent, action, t):
    while not action:
        pass
    return t


def _info_with_bytes(env, state, agent, action, t):
    return _replaced(t, info={"state": state})


def _nan_info(env, state, agent, action, t):
    return _replaced(t, info={"score": float("nan")})


def _undeclared_term(env, state, agent, action, t):
    return _replaced(t, local_rewards={"right": 1.0, "style": 0.1})


def _nan_term(env, state, agent, action, t):
    return _replaced(t, local_rewards={"right": float("nan")})


def _grows(env, state, agent, action, t):
    after = json.loads(t.state)
    after["said"] = action
    return _replaced(t, state=json.dumps(after).encode())


def _text_state(env, state, agent, action, t):
    return _replaced(t, state=t.state.decode())


def _pays_after_the_end(env, state, agent, action, t):
    now = json.loads(state)
    return _replaced(t, team_reward=1.0) if now["at"] == now["goal"] else t


def _infinite_reward(env, state, agent, action, t):
    return _replaced(t, team_reward=float("-inf"))


class _SharedScratch(CountingEnvironment):
    """Steps share one scratch list, which is right for one step at a time only."""

    def __init__(self):
        self._scratch = []

    def step(self, state, agent, action):
        self._scratch.clear()
        for letter in action:
            self._scratch.append(letter)
            time.sleep(0.0005)
        done = super().step(state, agent, action)
        return _replaced(done, info={"heard": "".join(self._scratch)})


class SharedScratch(Counting):
    def environment(self):
        return _SharedScratch()


class OverlappingSplits(Counting):
    def draw(self, rng, split):
        return json.dumps({"at": 0, "goal": rng.randint(2, 6)}).encode()


class TwinsInTwoSplits(Counting):
    def split_key(self, task):
        return str(json.loads(task.payload)["goal"] % 2)


class TimeSeeded(Counting):
    def draw(self, rng, split):
        return json.dumps({"at": 0, "goal": 3, "salt": random.random(), "split": split}).encode()


class SequentialTaskset:
    """Task n depends on how many were asked for before."""

    def __init__(self):
        self._rng = Random(0)

    def size(self, split):
        return None

    def task(self, split, index):
        if index < 0:
            raise InvalidArgumentError("negative")
        payload = {"at": 0, "goal": self._rng.randint(2, 6), "key": f"{split}{index}"}
        return Task(f"{split}/{index}", split, index, json.dumps(payload).encode())


class Sequential(Counting):
    def taskset(self):
        return SequentialTaskset()


class NoRange(Counting):
    def taskset(self):
        taskset = super().taskset()
        return SimpleNamespace(size=lambda split: 50, task=taskset.task)


class AnyAgent(Counting):
    def environment(self):
        env = CountingEnvironment()
        return SimpleNamespace(
            reset=env.reset,
            observe=lambda state, agent: env.observe(state, LEFT),
            step=lambda state, agent, action: env.step(state, LEFT, action),
        )


class GlobalRandomPolicy(Counting):
    def random_action(self, state, agent, rng):
        return f"say {random.random()}"


class ExitingPolicy(Counting):
    def demonstrate(self, state, agent, rng):
        raise SystemExit(0)


class ExitingTaskset(Counting):
    def taskset(self):
        raise SystemExit(0)


class HashOrderPolicy(Counting):
    def demonstrate(self, state, agent, rng):
        return sorted({"say", *(f"word{n}" for n in range(30))}, key=hash)[0]


class PoorScript(Counting):
    def demonstrate(self, state, agent, rng):
        return "say 99"


class RepeatedWords(Counting):
    def vocabulary(self):
        return ["say", "one two", "say"]


class NoBound(Counting):
    return_bound = float("inf")


class ForgottenAgent(Counting):
    local_terms: ClassVar = {LEFT: {"right": 1.0}}


class LoneSystemMessage(Counting):
    def environment(self):
        env = CountingEnvironment()
        env.observe = lambda state, agent: (Message("user", "x"), Message("system", "rules"))
        return env


class NobodyToAct(Counting):
    def environment(self):
        env = CountingEnvironment()
        env.observe = lambda state, agent: ()
        return env


class NineImages(Counting):
    def environment(self):
        env = CountingEnvironment()
        drawn = tuple(ImagePart(28, 28, bytes([n]) * (3 * 28 * 28)) for n in range(9))
        env.observe = lambda state, agent: (Message("user", drawn),)
        return env


class LeakingTool(Counting):
    def hidden_texts(self, task):
        return [f'salt "{json.loads(task.payload)["salt"]}"']

    def environment(self):
        class Leaking(CountingEnvironment):
            def observe(self, state, agent):
                leak = f'The salt "{json.loads(state)["salt"]}".'
                tools = [Tool("look", leak, {"type": "object"})]
                return BoundedObservation(super().observe(state, agent), tools=tools)

        return Leaking()


class LeakingCall(LeakingTool):
    def environment(self):
        class Leaking(CountingEnvironment):
            def observe(self, state, agent):
                leak = json.dumps({"at": f'salt "{json.loads(state)["salt"]}"'})
                called = Message("assistant", "", (ToolCall("look", leak),))
                return (*super().observe(state, agent), called, Message("tool", "seen"))

        return Leaking()


class LeakingPrompt(Counting):
    def hidden_texts(self, task):
        salt = json.loads(task.payload)["salt"]
        return [f"salt {hashlib.sha256(str(salt).encode()).hexdigest()}"]

    def environment(self):
        class Leaking(CountingEnvironment):
            def observe(self, state, agent):
                salt = str(json.loads(state)["salt"]).encode()
                seen = super().observe(state, agent)
                return (*seen, Message("user", f"salt {hashlib.sha256(salt).hexdigest()}"))

        return Leaking()


GlobalState = _with_step(_global_state)
OwnState = _with_step(_own_state)
RandomReward = _with_step(_random_reward)
HashOrder = _with_step(_hash_order)
Farmable = _with_step(_farmable)
PaidExample = _with_step(_pays_the_example)
ExitsOnEmptyText = _with_step(_exits_on_empty_text)
RaisesOnOddDigits = _with_step(_raises_on_odd_digits)
SlowOnLongText = _with_step(_slow_on_long_text)
Slow = _with_step(_slow)
HangsOnEmptyText = _with_step(_hangs_on_empty_text)
InfoWithBytes = _with_step(_info_with_bytes)
NanInfo = _with_step(_nan_info)
UndeclaredTerm = _with_step(_undeclared_term)
NanTerm = _with_step(_nan_term)
Grows = _with_step(_grows)
TextState = _with_step(_text_state)
PaysAfterTheEnd = _with_step(_pays_after_the_end)
InfiniteReward = _with_step(_infinite_reward)
