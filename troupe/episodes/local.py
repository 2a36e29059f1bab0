"""In-process ports: a real environment, and a scripted policy that mixes demonstrations and slips.

For dry runs, notebooks and tests. The scripted policy is told the state that each observation
came from; a model never is.
"""

from collections.abc import Sequence
from random import Random

from troupe import plugins
from troupe.episodes.ports import Generation, Outcome, Sampled, Start, outcome_of
from troupe.ids import prompt_digest
from troupe.sandbox.sandbox import Sandbox
from troupe.spec.job import SamplingSpec
from troupe.tasks.family import Observation, SandboxedTaskFamily, Split, TaskFamily, Transition
from troupe.tasks.optional import scripted_policy
from troupe.tasks.registry import make_environment


class LocalEnv:
    """EnvPort on a task family in this process; close it after use.

    A family that runs programs gets this machine's sandbox.
    """

    def __init__(self, family: TaskFamily) -> None:
        self._sandbox: Sandbox | None = None
        if isinstance(family, SandboxedTaskFamily):
            self._sandbox = plugins.load(plugins.SANDBOXES, "local")()
        self._environment = make_environment(family, self._sandbox)
        self._tasks = family.taskset()
        self.origin: dict[Observation, tuple[bytes, str]] = {}

    def close(self) -> None:
        """End what the sandbox runs."""
        if self._sandbox is not None:
            self._sandbox.close()

    def observe(self, state: bytes, agent: str) -> Observation:
        """What ``agent`` sees in ``state``."""
        return self._environment.observe(state, agent)

    async def reset(
        self, *, split: Split, index: int, observe: Sequence[str], timeout_s: float
    ) -> Start:
        """The first state of a task."""
        task = self._tasks.task(split, index)
        state = self._environment.reset(task)
        return Start(task.id, state, self._observe(state, observe))

    async def step(
        self,
        *,
        state: bytes,
        agent: str,
        actions: Sequence[str],
        observe: Sequence[str],
        timeout_s: float,
    ) -> list[Outcome]:
        """Judge each action on its own copy of ``state``."""
        return [
            self._outcome(self._environment.step(state, agent, action), observe)
            for action in actions
        ]

    def _outcome(self, done: Transition, observe: Sequence[str]) -> Outcome:
        return outcome_of(done, self._observe(done.state, observe))

    def _observe(self, state: bytes, agents: Sequence[str]) -> dict[str, Observation]:
        found = {agent: self._environment.observe(state, agent) for agent in agents}
        self.origin.update({seen: (state, agent) for agent, seen in found.items()})
        return found


class ScriptedRollout:
    """RolloutPort without a model: candidate 0 demonstrates, the others slip now and then.

    A family without a script plays its random actions, or words of the prompt.

    Token ids are the text's UTF-8 bytes and every logprob is 0: good for reading, not to train on.
    """

    def __init__(self, family: TaskFamily, env: LocalEnv) -> None:
        self._script = scripted_policy(family, env.observe)
        self._env = env

    async def generate(
        self,
        *,
        policy: str,
        policy_version: int,
        observation: Observation,
        num_candidates: int,
        sampling: SamplingSpec,
        seed: int,
        timeout_s: float,
    ) -> Generation:
        """Candidates for an observation that the local environment has shown."""
        state, agent = self._env.origin[observation]
        texts = [
            self._text(state, agent, Random(f"{seed}/{i}"), slips=i > 0)
            for i in range(num_candidates)
        ]
        prompt = list("\n".join(m.content for m in observation).encode())
        sampled = [Sampled(list(t.encode()), [0.0] * len(t.encode()), t, "stop") for t in texts]
        return Generation(prompt, prompt_digest(prompt), sampled, policy_version, 0.0)

    def _text(self, state: bytes, agent: str, rng: Random, *, slips: bool) -> str:
        words = self._script(state, agent, rng).split(" ")
        if slips and len(words) > 1:
            first, second = rng.randrange(len(words)), rng.randrange(len(words))
            words[first], words[second] = words[second], words[first]
            words = words[: rng.randint(1, len(words))]
        return " ".join(words)
