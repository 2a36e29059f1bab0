"""Where the trainer runs: addresses, limits and paths (TROUPE_TRAINER_*)."""

from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from troupe.runtime.serving.settings import ServingSettings


class TrainerSettings(ServingSettings):
    """Settings of one trainer process."""

    model_config = SettingsConfigDict(
        env_prefix="TROUPE_TRAINER_", extra="ignore", use_attribute_docstrings=True
    )

    max_request_bytes: int = Field(default=1 << 20, ge=1024)
    """Largest gRPC message that is received: commands are small, and groups come by Redis."""
    redis_url: str = "redis://127.0.0.1:6390/0"
    """Redis or Valkey that holds the job's streams."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the models live; auto selects an accelerator if there is one."""
    attention: Literal["auto", "tree", "packed"] = "auto"
    """tree: each prompt once, then a tree of its completions; packed: plain sequences side by side,
    as flash attention wants them; auto: packed where flash attention is installed and fits."""
    compiled: bool = False
    """torch.compile of the MLPs and norms of each layer, in place of Liger's kernels: the first
    steps are slower by the compilation (a GPU: triton; a CPU: a C++ compiler). One rank only."""
    ranks: int = Field(default=1, ge=1, le=1024)
    """Processes of this machine that share the weights (FSDP2), one on each GPU, of a job whose
    spec has no trainer.gpus. For several machines start the trainer with torchrun instead, which
    sets rank and size."""
    shard_ranks: int = Field(default=0, ge=0)
    """Ranks in a row that share one copy of the weights, such as the GPUs of one node; further
    ranks share further copies (HSDP), so that nodes exchange gradients alone. 0: all ranks share
    one copy."""
    held_gradient_bytes: int = Field(default=2 << 30, ge=0)
    """Memory of the host for gradients of tickets that ended before earlier ones, where a job's
    batch.overlap is on and its gradients are summed in turn (full weights' are, unless
    batch.gradient_sums says otherwise). 0: tickets are learnt from in their order alone."""
    colocated: bool = False
    """The device is the job's server's too: they take turns (with
    TROUPE_ROLLOUT_SGLANG_COLOCATED)."""
    torch_threads: int = Field(default=1, ge=1, le=1024)
    """Threads of one CPU operation."""
    weights_via: Literal["auto", "grpc", "store", "distributed"] = "auto"
    """How weights reach replicas: streamed to each; through a store that all reach; or, for full
    weights, broadcast by torch.distributed (NCCL between GPUs, gloo without). auto: full weights of
    1 GB or more are broadcast where engines take it and connections are plain; all else goes by the
    store of weights_url, or by grpc without one."""
    weights_url: str = ""
    """The store: a shared folder, or s3://, gs://, az://."""
    weights_options: dict[str, str] = Field(default_factory=dict[str, str])
    """Options of an object store (JSON): endpoint, region, keys; any that obstore knows."""
    weights_join_timeout_s: float = Field(default=60.0, gt=0.0)
    """Longest time for a torch.distributed group to form, and for one bucket to pass, seconds."""
    weights_bucket_mib: int = Field(default=64, ge=1, le=4096)
    """Full weights that torch.distributed sends are under way in two buckets of about so much; a
    larger tensor is one by itself. Sender and receiver hold no more beside the model, MiB."""
    run_dir: str = ""
    """Folder of the job's artifacts; empty: the one that the router assigns."""

    @model_validator(mode="after")
    def _shares_one_device(self) -> Self:
        """Ranks and NCCL's groups need a device for each process."""
        if self.colocated and (self.ranks > 1 or self.weights_via == "distributed"):
            raise ValueError(
                "colocated is for a trainer of one rank whose weights come by grpc or store: two "
                "processes on one device form no group"
            )
        return self
