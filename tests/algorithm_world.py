"""A whole job in one process: real tasks, the real engine, real groups, the real learners.

Only gRPC and Redis are left out, so a step of a tiny model takes a fraction of a second. What the
environment judges is scripted: a random model's tokens differ between kinds of processor, and with
them whether a group's rewards differ.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import GenerateRequest, Generation, ScoreRequest
from troupe.episodes.build import load_parts
from troupe.episodes.local import EngineRollout, LocalEnv, StateObservation
from troupe.episodes.player import Played
from troupe.evaluation.bare import stage_bare
from troupe.ids import ticket_id, train_round
from troupe.rewards.reward import JudgedTransition
from troupe.runtime.engines.engine import StagedWeights
from troupe.runtime.step_report.trainer import TrainerPart
from troupe.spec.job import JobSpec
from troupe.spec.policy import teacher_name
from troupe.tasks.family import Observation, Task, TaskFamily
from troupe_rollout.engines.cpu import CpuEngine
from troupe_rollout.engines.cpu.settings import CpuEngineSettings
from troupe_trainer.checkpoint.export import export_version
from troupe_trainer.learn.collector import Batch
from troupe_trainer.learn.learners import Learned, Learners
from troupe_trainer.learn.report import step_report
from troupe_trainer.learn.validation import Expected, fault
from troupe_trainer.tiny_model.build import build
from troupe_trainer.tiny_model.recipe import Recipe, TinyModelShape, WarmStart

SIZE = 4
SMALL = TinyModelShape(hidden_size=32, num_layers=2, num_heads=2, intermediate_size=64)


def build_planner(folder: Path, shape: TinyModelShape = SMALL, steps: int = 40) -> Path:
    """A Qwen3 that has seen a few Plan-Path answers, so that some completions end by themselves."""
    recipe = Recipe(
        task="plan_path",
        params={"size": SIZE},
        shape=shape,
        warm_start=WarmStart(
            num_careful_steps=steps,
            num_careless_steps=0,
            num_warmup_steps=10,
            batch_size=32,
            num_turns=2,
        ),
    )
    build(recipe, folder)
    return folder


def plan_path_spec(model: Path, algorithm: dict[str, Any], **overrides: Any) -> JobSpec:
    policy = {
        "model": str(model),
        "train": {"kind": "lora", "rank": 4, "alpha": 8},
        "optimizer": {"learning_rate": 0.01, "warmup_steps": 0},
    }
    body: dict[str, Any] = {
        "name": "in-process",
        "seed": 5,
        "steps": 2,
        "tasks_per_step": 2,
        "task": {"name": "plan_path", "params": {"size": SIZE}},
        "workflow": {"order": ["tool", "planner"], "max_turns": 2},
        "agents": {"tool": {"policy": "shared"}, "planner": {"policy": "shared"}},
        "policies": {"shared": policy},
        "algorithm": {"group_size": 3, **algorithm},
        "sampling": {"max_new_tokens": 8},
        "batch": {"tokens_per_row": 256, "rows_per_microbatch": 4},
    }
    return JobSpec.model_validate(body | overrides)


def moved_closer(transition: JudgedTransition, task: Task) -> float:
    """A reward function of 0 and 1."""
    return float(transition.team_reward > 0.0)


class Script:
    """Answers of every quality, drawn by the seed of the request alone."""

    def __init__(self, family: TaskFamily) -> None:
        self._family = family

    def answers(self, observation: StateObservation, num: int, seed: int) -> list[str]:
        """``num`` answers to an observation; of two or more, one is right and one is malformed."""
        state, agent = observation.state, observation.agent
        rng = Random(seed)
        right = self._family.demonstrate(state, agent, rng)
        wrong = "no answer"
        further = [
            rng.choice([right, wrong, self._family.random_action(state, agent, rng)])
            for _ in range(num)
        ]
        answers = [right, wrong, *further][:num] if num > 1 else further
        rng.shuffle(answers)
        return answers


class ScriptedTexts:
    """RolloutPort on an engine in this process: its tokens and logprobs, with scripted texts."""

    def __init__(self, engine: CpuEngine, script: Script) -> None:
        self._engine, self._script = EngineRollout(engine), script

    async def generate(
        self, request: GenerateRequest[Observation], *, timeout_s: float
    ) -> Generation:
        assert isinstance(request.prompt, StateObservation)
        generation = await self._engine.generate(request, timeout_s=timeout_s)
        answers = self._script.answers(request.prompt, request.num_candidates, request.seed)
        pairs = zip(generation.candidates, answers, strict=True)
        return replace(generation, candidates=[replace(c, text=text) for c, text in pairs])


class ServedTeachers:
    """TeacherPort on an engine in this process."""

    def __init__(self, engine: CpuEngine) -> None:
        self._engine = engine

    async def score(self, request: ScoreRequest, *, timeout_s: float) -> list[list[float]]:
        return await self._engine.score_completions(
            request.policy, request.policy_version, request.prompt_token_ids, request.completions
        )


class InProcess:
    """Make it with ``start``; ``step`` plays, learns and publishes; ``close`` it."""

    def __init__(self, spec: JobSpec, team: Learners, engine: CpuEngine, run_dir: Path) -> None:
        self.spec, self.team = spec, team
        self._engine, self._run_dir = engine, run_dir
        parts = load_parts(spec)
        self._env = LocalEnv(parts.family)
        rollout = ScriptedTexts(engine, Script(parts.family))
        self._player = parts.player(rollout, self._env, ServedTeachers(engine))
        self.version = 0

    @classmethod
    async def start(cls, spec: JobSpec, run_dir: Path) -> "InProcess":
        team = await Learners.load(spec, run_dir, device="cpu", threads=1)
        engine = CpuEngine(CpuEngineSettings(max_prefill_tokens=256))
        await engine.start(spec.served())
        for name, policy in spec.teachers().items():
            await stage_bare(engine, name, policy.model, run_dir)
            await engine.activate(name, 0)
        job = cls(spec, team, engine, run_dir)
        await job.publish()
        return job

    async def publish(self) -> None:
        for policy, learner in self.team.by_policy.items():
            export = export_version(learner, self.version, self._run_dir / "out", job_id="j")
            config = export.manifest.adapter_config_json
            kind = "lora" if config else "full"
            weights = StagedWeights(policy, self.version, kind, export.path, config)
            assert await self._engine.stage(weights) == export.manifest.tensor_digest
            await self._engine.activate(policy, self.version)

    async def play(self) -> list[Played]:
        step = self.version
        return [
            await self._player.play(
                pb.Ticket(
                    ticket_id=ticket_id("j", train_round(step), index),
                    job_id="j",
                    round_id=train_round(step),
                    kind=pb.ROUND_KIND_TRAIN,
                    step=step,
                    split="train",
                    task_index=step * self.spec.tasks_per_step + index,
                    policy_versions=dict.fromkeys(self.spec.policies, step),
                )
            )
            for index in range(self.spec.tasks_per_step)
        ]

    def batch(self, played: Sequence[Played]) -> Batch:
        """The groups as the collector hands them over; a faulty one fails the test."""
        groups = sorted((g for p in played for g in p.groups), key=lambda g: g.group_id)
        assert len({g.group_id for g in groups}) == len(groups)
        for group in groups:
            size = self.team.by_policy[group.policy].model.vocabulary_size
            least = self.team.min_candidates
            expected = Expected(
                "j",
                group.policy,
                self.version,
                self.version,
                size,
                min_candidates=least,
                is_scored=teacher_name(group.policy) in self.spec.teachers(),
            )
            assert fault(group, expected) is None
        by_policy = {p: [g for g in groups if g.policy == p] for p in self.spec.policies}
        return Batch(self.version, by_policy, {})

    async def step(self) -> tuple[Batch, Learned, TrainerPart]:
        batch = self.batch(await self.play())
        learned = await self.team.learn(batch)
        self.version += 1
        await self.publish()
        return batch, learned, step_report(batch, learned, 1.0)

    async def close(self) -> None:
        self._env.close()
        self.team.close()
        await self._engine.stop()
