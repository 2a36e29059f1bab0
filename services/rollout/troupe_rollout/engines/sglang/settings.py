"""Settings of the `sglang` engine: TROUPE_ROLLOUT_SGLANG_*. Where it runs, never what is learnt."""

import sys
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from troupe.errors import InvalidArgumentError

PREFIX = "TROUPE_ROLLOUT_SGLANG_"
VERSION = "0.5.23"
"""The release of SGLang that the engine is written and tested against."""


SPECULATION_ON_CPU = (
    "speculation needs a GPU: on a CPU SGLang accepts draft tokens by the largest probability, so "
    "it would not sample (_verify_uses_greedy in its speculative/eagle_utils.py)"
)


class SglangSettings(BaseSettings):
    """``TROUPE_ROLLOUT_SGLANG_*``. Zero or empty leaves the choice to the engine or to SGLang."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="ignore", frozen=True, use_attribute_docstrings=True
    )

    python: str = ""
    """Interpreter of SGLang's environment; empty: `.venv-sglang` of the checkout, else this one."""
    url: str = ""
    """A running server to attach to (its folder of weights must be shared); empty: start one."""
    version: str = VERSION
    """Release that the environment must hold; empty accepts any."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """"auto" takes a GPU where the environment sees one."""
    tp_size: int = Field(default=1, ge=1, le=64)
    """Tensor-parallel width of a server."""
    dp_size: int = Field(default=1, ge=1, le=64)
    """Data-parallel copies inside a server; SGLang loads no adapters with more than 1."""
    mem_fraction: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Part of the GPU's memory for weights and key/value cache; 0: the preset's."""
    attention_backend: str = ""
    """SGLang's --attention-backend."""
    sampling_backend: str = ""
    """SGLang's --sampling-backend."""
    lora_backend: str = ""
    """SGLang's --lora-backend."""
    lora_rank: int = Field(default=0, ge=0, le=1024)
    """Largest rank that fits a slot; 0: the largest of the job."""
    lora_slots: int = Field(default=0, ge=0, le=1024)
    """Adapter versions computed with at once; 0: max_versions for each policy."""
    max_versions: int = Field(default=3, ge=2, le=64)
    """LoRA versions of one policy held at once: the staleness bound plus two."""
    context_length: int = Field(default=0, ge=0)
    """Longest prompt and completion together; 0: the model's."""
    max_total_tokens: int = Field(default=0, ge=0)
    """Tokens in the key/value cache; 0: what fits, on a CPU 16384. A prompt and its completion
    may have all but seven of them, or but two pages where these are more."""
    max_running_requests: int = Field(default=0, ge=0)
    """Candidates decoded together; 0: what fits, on a CPU 64."""
    max_in_flight: int = Field(default=4096, ge=1)
    """Candidates queued or decoded; beyond it requests are refused as overloaded."""
    colocated: bool = False
    """The device is the trainer's too: the server sleeps until the trainer wakes it, and gives its
    memory back when told to (a GPU; with TROUPE_TRAINER_COLOCATED)."""
    speculation: Literal["off", "ngram"] = "off"
    """ngram: look draft tokens up in what came before, prompts and answers, and verify them by
    sampling; a GPU only, without top-p, top-k or ``deterministic``. Never run on one."""
    speculation_tokens: int = Field(default=8, ge=2, le=64)
    """Draft tokens that are verified at once, where speculation is on."""
    deterministic: bool = False
    """Honour seeds (SGLang's deterministic inference; a GPU only, about a third slower)."""
    extra_flags: str = ""
    """More arguments of sglang.launch_server, as on a command line; they override Troupe's, except
    --host and --port: a server is always on loopback."""
    threads: int = Field(default=1, ge=1, le=256)
    """OMP_NUM_THREADS of a server without a GPU."""
    work_dir: str = ""
    """Folder for held versions and server logs; empty: the system's temporary folder."""
    log_level: str = "warning"
    """Log level of the server."""
    start_timeout_s: float = Field(default=600.0, gt=0.0)
    """Longest time from the start of a server until it answers."""
    call_timeout_s: float = Field(default=600.0, gt=0.0)
    """Longest HTTP call to the server, whatever the caller's deadline; beside it, as beside
    start_timeout_s, the model has time to be read at 25 MB/s. Sampling and scoring have their
    caller's deadline alone."""
    drain_timeout_s: float = Field(default=120.0, gt=0.0)
    """Longest wait of a swap for the requests of other full weights."""
    health_interval_s: float = Field(default=2.0, gt=0.0)
    """Time between two health checks of the server."""
    health_timeout_s: float = Field(default=10.0, gt=0.0)
    """Time without an answer after which a check has failed; three failures in a row restart the
    server."""
    backoff_s: float = Field(default=1.0, gt=0.0)
    """Wait before the first restart; doubles with each one that fails, up to 30 s."""

    @model_validator(mode="after")
    def _choices_must_agree(self) -> "SglangSettings":
        if self.deterministic and self.device == "cpu":
            raise ValueError("deterministic needs a GPU: SGLang's CPU backends ignore seeds")
        if self.speculation != "off" and self.device == "cpu":
            raise ValueError(SPECULATION_ON_CPU)
        if self.speculation != "off" and self.deterministic:
            # Drafts come from what all requests said, and decide which draws are made.
            raise ValueError(
                "speculation and deterministic exclude each other: a seed fixes no draw"
            )
        if self.speculation != "off" and self.url:
            raise ValueError("speculation is for a server that the sidecar starts itself")
        if self.colocated and (self.url or self.tp_size * self.dp_size > 1):
            raise ValueError("colocated is for a server of one GPU that the sidecar starts itself")
        if self.url and not _is_on_loopback(self.url):
            raise ValueError("url must be on loopback: a server is never exposed")
        return self

    def interpreter(self) -> str:
        """The Python that has SGLang."""
        checkout_python = Path(__file__).parents[5] / ".venv-sglang" / "bin" / "python"
        return self.python or (str(checkout_python) if checkout_python.exists() else sys.executable)


def _is_on_loopback(url: str) -> bool:
    """Whether ``url`` leads to this machine: by its host, and not by how it begins."""
    try:
        parts = urlsplit(url)
        has_port = parts.port is not None
    except ValueError:
        return False
    is_plain = parts.scheme == "http" and parts.username is None and parts.password is None
    return is_plain and has_port and parts.hostname in ("127.0.0.1", "localhost", "::1")


def load_settings() -> SglangSettings:
    """From the environment; raises InvalidArgumentError that names the variable."""
    try:
        return SglangSettings()
    except ValidationError as error:
        wrong = "; ".join(
            f"{PREFIX}{'_'.join(map(str, item['loc'])).upper() or '*'}: {item['msg']}"
            for item in error.errors()
        )
        raise InvalidArgumentError(
            f"The settings of engine 'sglang' are wrong: {wrong}. Correct the environment."
        ) from error
