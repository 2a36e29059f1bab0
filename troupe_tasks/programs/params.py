"""Parameters of the family ``program``."""

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from troupe_tasks.programs.critical_path import PATH_TERM, PathUnit

JUDGED = "judged"
"""Local term: what the judge pays for the answer of a single call."""


class JudgeParams(BaseModel):
    """The inner family: its tasks are the program's, its environment judges the answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(description="A registered task, or module:attr.")
    params: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="Parameters of that task."
    )
    agent: str = Field(
        description="As which agent of that task the answer is judged, and whose first prompt is "
        "the program's question."
    )


class SeatParams(BaseModel):
    """Which calls are this agent's, and what is paid for one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: bool = Field(
        default=False,
        description="Calls made with this agent's own key. Then OPENAI_BASE_URL is the same in "
        "all episodes and the key alone tells them apart; TROUPE_KEYS (JSON) has each agent's, "
        "OPENAI_API_KEY that of the only agent.",
    )
    model: str | None = Field(default=None, description="The call's model is this text.")
    header: str | None = Field(
        default=None, description="The call's header X-Troupe-Agent is this text."
    )
    system: str | None = Field(
        default=None, description="Regular expression found in the first system message."
    )
    rest: bool = Field(default=False, description="Takes every call that no other agent takes.")
    judged: bool = Field(
        default=False,
        description="The judge also reads each answer of this agent: local term 'judged'.",
    )
    judged_weight: float = Field(
        default=0.5, ge=0, description="Default weight of the term 'judged'."
    )
    terms: dict[str, float] = Field(
        default_factory=dict[str, float],
        description="Terms of the function in 'score', with default weights.",
    )
    path_weight: float = Field(
        default=0.0,
        le=0,
        description="Default weight of the term 'critical_path', paid at the end of a run: its "
        "calls (or thousands of tokens) that cannot be made at once. 0: no such term.",
    )
    ignore: str | None = Field(
        default=None,
        description="Regular expression: what it matches in prompts becomes *, so that a date "
        "does not make two runs differ.",
    )
    images: bool = Field(
        default=False,
        description="Calls may hold images; the agent's policy is a vision-language model.",
    )
    samples: list[str] = Field(
        default_factory=list[str],
        description="Answers for scripted play and dry runs; without them, the judge's task's.",
    )

    @property
    def weights(self) -> dict[str, float]:
        """The seat's local terms with their default weights."""
        judged = {JUDGED: self.judged_weight} if self.judged else {}
        path = {PATH_TERM: self.path_weight} if self.path_weight else {}
        return {**judged, **path, **self.terms}

    @field_validator("system", "ignore")
    @classmethod
    def _readable(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"is no regular expression: {error}") from error
        return pattern

    @model_validator(mode="after")
    def _decides(self) -> "SeatParams":
        rules = (self.model, self.header, self.system)
        if not (self.rest or self.key) and all(rule is None for rule in rules):
            raise ValueError("give model, header or system, or key: true, or rest: true")
        for name in (JUDGED, PATH_TERM):
            if name in self.terms:
                raise ValueError(f"a seat may have the term '{name}' anyway; give yours another")
        return self


class SandboxParams(BaseModel):
    """What one run may use in the sandbox; its shell commands count to it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory_mib: int = Field(default=1024, ge=64, description="Memory of all processes, in MiB.")
    num_processes: int = Field(default=64, ge=1, description="Processes and threads at once.")
    disk_mib: int = Field(
        default=64, ge=1, description="Files below /tmp, in MiB; they are held in memory."
    )


class ProgramParams(BaseModel):
    """Which program runs, who is asked, who judges, and what bounds a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    program: str = Field(
        description="module:attr of a function, or coroutine function, of the task (a dict with "
        "id, question and system) that returns its answer."
    )
    python: str | None = Field(
        default=None,
        description="Interpreter of the program, such as teams/.venv/bin/python; without it, "
        "Troupe's own. TROUPE_PROGRAM_INTERPRETERS says which may be named.",
    )
    image: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}$",
        description="On Kubernetes: container image that the program runs in, such as "
        "ghcr.io/acme/team@sha256:...; the chart's env.program.repositories says of which. python "
        "and folder are paths in it.",
    )
    folder: str | None = Field(
        default=None,
        description="Folder that the program is imported from, if it is not installed. "
        "TROUPE_PROGRAM_FOLDERS says which may be named.",
    )
    preload: list[str] = Field(
        default_factory=list[str],
        description="Modules to import once, before runs are forked: the framework's.",
    )
    judge: JudgeParams = Field(description="Whose tasks, and who judges the returned answer.")
    score: str | None = Field(
        default=None,
        description="module:attr of a function of a ScoredCall that returns local terms. It runs "
        "in the env service, not in the program's process.",
    )
    seats: dict[str, SeatParams] = Field(min_length=1, description="Agent -> its calls.")
    replay: Literal["always", "never"] = Field(
        default="always",
        description="never: for programs with side effects; a run is never repeated with its "
        "answers, so only algorithms over whole runs (grpo) fit, and a lost run is retried.",
    )
    start: Literal["fork", "fresh"] = Field(
        default="fork",
        description="fork: each run is a fork of a process that imported the framework and ran "
        "the program once. fresh: a new interpreter for each run.",
    )
    sandbox: SandboxParams | None = Field(
        default=None,
        description="Given, also as {}: each run is a new interpreter in the env service's "
        "sandbox, with files of its own and no network but the endpoint. For programs that run "
        "what a model wrote, such as a coding agent's commands. Needs replay: never.",
    )
    warm: bool = Field(
        default=True,
        description="Run the program once, with empty answers, before the first fork. Never done "
        "with replay: never.",
    )
    seed: int = Field(default=0, ge=0, description="Seed of the programs' own randomness.")
    max_calls: int = Field(default=32, ge=1, le=512, description="Model calls of an episode.")
    path_unit: PathUnit = Field(
        default="calls",
        description="What a call costs on the critical path: 1, or about the tokens of its answer.",
    )
    max_waiting: int = Field(default=64, ge=1, le=256, description="Calls that wait at once.")
    max_answer_chars: int = Field(
        default=16_384, ge=16, description="Longer answers are cut before the program sees them."
    )
    max_prompt_bytes: int = Field(default=256 * 1024, ge=1024, description="Bytes of a prompt.")
    max_live: int = Field(
        default=8,
        ge=1,
        le=256,
        description="Idle runs kept by a process. With replay: never, all runs of a process: one "
        "more waits for start_s, and is then tried again elsewhere or later.",
    )
    start_s: float = Field(
        default=120.0, gt=0, description="Time to import and warm up, in seconds."
    )
    idle_s: float = Field(
        default=45.0,
        gt=0,
        description="Time from one call to the next, in seconds; keep it below "
        "limits.env_timeout_s.",
    )
    answer_s: float = Field(
        default=900.0,
        gt=0,
        description="Longest wait of a call for its answer, in seconds; then nobody plays the "
        "episode any more, and the run and its keys end.",
    )
    run_s: float = Field(default=3600.0, gt=0, description="Wall time of a run, in seconds.")
    cpu_s: int = Field(default=120, ge=1, description="Processor time of a run, in seconds.")
    keep_alive_s: float = Field(
        default=2.0, gt=0, description="A waiting client is sent a space this often, in seconds."
    )

    @field_validator("program")
    @classmethod
    def _is_named(cls, name: str) -> str:
        module, _, attribute = name.partition(":")
        if not module or not attribute:
            raise ValueError("is not module:attr")
        return name

    @property
    def is_keyed(self) -> bool:
        """Whether keys tell calls apart, not URLs."""
        return any(seat.key for seat in self.seats.values())

    @model_validator(mode="after")
    def _fits(self) -> "ProgramParams":
        takers = [agent for agent, seat in self.seats.items() if seat.rest]
        if len(takers) > 1:
            raise ValueError(f"seats {', '.join(takers)} both say rest: true; only one may")
        if self.sandbox is not None and self.replay != "never":
            raise ValueError("a program in the sandbox is not repeated; set replay: never")
        if self.image is not None and (self.sandbox is not None or self.is_keyed):
            raise ValueError(
                "a program in an image of its own has neither the sandbox nor keys; leave image "
                "out, or sandbox and key: true"
            )
        if self.sandbox is not None and self.python is None:
            raise ValueError(
                "a program in the sandbox needs a python of its own: without one it would be shown "
                "the env service's packages"
            )
        if self.score is None and (scored := [a for a, s in self.seats.items() if s.terms]):
            raise ValueError(f"seat {scored[0]} has terms and there is no function in 'score'")
        return self
