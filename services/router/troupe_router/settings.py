"""Where the router runs: addresses, limits and paths (TROUPE_ROUTER_*)."""

import difflib
import os
import re
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from troupe.bundles.archive import MAX_BUNDLE_BYTES
from troupe.runtime.serving import ServingSettings

_PREFIX = "TROUPE_ROUTER_"
_SERVICE_LINK = re.compile(r"(SERVICE_(HOST|PORT)|PORT)(_|$)")
"""What Kubernetes sets for a Service that is called troupe-router."""


class RouterSettings(ServingSettings):
    """Settings of one router process."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, extra="forbid", use_attribute_docstrings=True
    )

    grpc_address: str = "127.0.0.1:8481"
    """host:port of RouterService."""
    max_request_bytes: int = Field(default=4 << 20, ge=1024)
    """Largest gRPC message that is received; heartbeats are small."""
    rest_address: str = "127.0.0.1:8480"
    """host:port of the REST API."""
    redis_url: str = "redis://127.0.0.1:6390/0"
    """URL of the Redis or Valkey with streams and records."""
    runs_dir: Path = Path("runs")
    """Folder of the run folders."""
    min_free_bytes: int = Field(default=128 << 20, ge=0)
    """Free bytes on the disk of runs_dir below which no step begins (a tenth of a small disk)."""
    launcher: Literal["local", "kubernetes", "none"] = "local"
    """local: start a job's processes on this machine; kubernetes: as objects of the cluster that
    the router runs in; none: other means start them."""
    release: str = "troupe"
    """Name of the chart's objects: the launcher's templates are the ConfigMap <it>-launcher."""
    namespace: str = ""
    """Namespace of the launcher's objects; empty: the router's namespace."""
    kubeconfig: str = ""
    """Kubeconfig file of the launcher; empty: the service account of the router's pod."""
    players: Literal["inside", "outside"] = "inside"
    """inside: the router plays the episodes of jobs; outside: separate processes do
    (`python -m troupe_router.play`), beside any number of routers."""
    env_replicas: int = Field(default=1, ge=1, le=64)
    """Env processes that a launcher starts for a job."""
    trainer_gpus: int = Field(default=0, ge=0, le=1024)
    """GPUs of each trainer here, and ranks of one whose job names no trainer.gpus; a job that names
    more is refused. 0: a job may name any number, and has one rank otherwise."""
    gpus: int = Field(default=0, ge=0, le=64)
    """GPUs of this machine that a job's processes share, as `troupe plan --gpus` says; jobs then
    run one after another. 1: a job's server and trainer take turns. Above 1 for launcher local
    alone: elsewhere whoever makes the containers gives them GPUs. 0: no process is given any."""
    gpu_gb: float = Field(default=80.0, ge=1.0)
    """Memory of each of them, GB."""
    process_threads: int = Field(default=1, ge=1)
    """OMP_NUM_THREADS of the processes that a launcher starts."""
    replica_ttl_s: float = Field(default=5.0, gt=0.0)
    """Silence after which a replica is evicted."""
    claim_idle_s: float = Field(default=5.0, gt=0.0)
    """Silence of a worker after which another plays its tickets."""
    lease_ttl_s: float = Field(default=5.0, gt=0.0)
    """Silence of a router after which another conducts its jobs."""
    reconcile_s: float = Field(default=0.25, gt=0.0)
    """Time between two checks of a job's processes."""
    watch_s: float = Field(default=2.0, gt=0.0)
    """Time between two checks of what a job waits for."""
    series_linger_s: float = Field(default=120.0, ge=0.0)
    """Time for which a job that ended or paused keeps its Prometheus series: several scrapes."""
    generate_calls: int = Field(default=8192, ge=1)
    """Generate calls of one job that run or wait here; one more is refused."""
    record_fraction: float = Field(default=1.0, ge=0.0, le=1.0)
    """Share of the training episodes that episodes.jsonl keeps; evaluation is kept whole."""
    record_tokens_per_s: float = Field(default=50_000.0, ge=0.0)
    """Of a training round that samples more than so many tokens a second, episodes.jsonl keeps only
    as many episodes as this rate allows (rounds of less than ten seconds' worth are kept whole);
    0: no limit."""
    record_tokens: bool = True
    """Whether episodes.jsonl keeps token ids and their log probabilities, for the viewer."""
    max_body_bytes: int = Field(default=1 << 20, ge=1024)
    """Largest body of a REST request."""
    max_streams: int = Field(default=2000, ge=1)
    """Clients that may follow events (SSE), or wait for a page of events or logs, at once."""
    max_streams_per_caller: int = Field(default=1000, ge=1)
    """Those among them with one key, or from one address where there are no keys."""
    max_replicas: int = Field(default=0, ge=0)
    """Rollout replicas of all active jobs; other jobs wait in the queue; 0: no limit."""
    max_jobs: int = Field(default=0, ge=0)
    """Jobs that are active at once; 0: no limit."""
    api_keys: Path | None = None
    """File of API keys (`troupe keys add`), read again when it changes; none: no keys."""
    allow_anonymous: bool = False
    """Serve REST without keys on other addresses than loopback; control access by other means."""
    hosts: str = ""
    """Host names that a router without keys accepts, comma-separated, with * for any part.
    Addresses, names without a dot and those of a cluster's Services (*.svc) are always accepted."""
    rate_per_s: float | None = Field(default=None, ge=0.0)
    """Requests a second of one key, or of one address without keys; 0: no limit. Not set: no limit
    where REST listens on loopback alone, else 50."""
    rate_burst: int = Field(default=100, ge=1)
    """Requests that may come at once within that rate."""
    plugin_modules: str | None = None
    """Modules that specs may name as `module:attr`, with what lies in them, comma-separated; "*":
    any; empty: none. Not set: any where REST listens on loopback alone, else none."""
    model_folders: str | None = None
    """Folders that models of specs may lie in, comma-separated, beside runs_dir; "*": any. Not set:
    any where REST listens on loopback alone, else `models`."""
    models_of_runs: bool = True
    """Specs may name models in runs_dir (`runs/JOB/policies/NAME/merged`). False: rollouts do not
    mount the run folders, and such a spec is refused."""
    data_folders: str | None = None
    """Folders that data files of specs' tasks may lie in, comma-separated; "*": any. Not set: any
    where REST listens on loopback alone, else `data`."""
    bundles: bool | None = None
    """Take code with a job (a bundle), from keys with the scope `code`; env services run it. Not
    set: only where REST listens on loopback alone."""
    bundle_bytes: int = Field(default=16 << 20, ge=1024, le=MAX_BUNDLE_BYTES)
    """Largest archive of a bundle."""
    bundle_store_bytes: int = Field(default=1 << 30, ge=1024)
    """Bytes of uploaded bundles that are kept together; jobs have their own copies."""
    model_ids: str = "*"
    """Hub ids that specs may name, comma-separated, with * for any part: "Qwen/*"; empty: none."""
    hub_copies: str = ""
    """Folders of hub ids that were downloaded, as `ID=FOLDER`, comma-separated. A spec that names
    such an id, which it may then, is given the folder: services that are offline find it there."""
    tracker_hosts: str | None = None
    """Hosts that trackers of specs may name (mlflow's tracking_uri), comma-separated, with * for
    any part, beside MLFLOW_TRACKING_URI; "*": any. Not set: any where REST listens on loopback
    alone, else none."""
    tls_certificate: Path | None = None
    """PEM certificate (chain) of the REST port; with tls_key the port serves https."""
    tls_key: Path | None = None
    """PEM private key of tls_certificate."""
    retention_max_age_s: float = Field(default=0.0, ge=0.0)
    """Run folders of jobs that ended longer ago are removed, with their jobs; 0: at any age kept.
    Never those that run, are pinned or are named by an unfinished job."""
    retention_max_jobs: int = Field(default=0, ge=0)
    """Run folders that are kept, the oldest go; 0: any number."""
    retention_max_bytes: int = Field(default=0, ge=0)
    """Bytes that run folders may take together, the oldest go; 0: any."""
    retention_resumable_s: float = Field(default=30 * 86400.0, ge=0.0)
    """A failed, cancelled or paused job can be resumed for so long: its run folder is kept."""
    retention_every_s: float = Field(default=3600.0, gt=0.0)
    """Time between two looks at the run folders, where any of these limits is set."""
    commit: str = ""
    """Version-control commit for summary.json; empty: git's answer."""

    @model_validator(mode="after")
    def _gives_gpus_that_it_has(self) -> Self:
        """Only the local launcher shows a process its devices."""
        if self.gpus > 1 and self.launcher != "local":
            raise ValueError(
                f"gpus is {self.gpus} and launcher is {self.launcher}, which gives no process its "
                "GPUs: leave gpus out, and set them where the containers are made (`troupe plan`)"
            )
        shown = self.shown_gpus
        if self.launcher == "local" and shown is not None and len(shown) < self.gpus:
            raise ValueError(
                f"gpus is {self.gpus} and CUDA_VISIBLE_DEVICES shows {len(shown)} "
                f"('{','.join(shown)}'): set TROUPE_ROUTER_GPUS to at most those, or show more"
            )
        return self

    @model_validator(mode="after")
    def _knows_every_variable(self) -> Self:
        """Refuse unknown variables: a misspelt limit would not limit anything."""
        known = [name.upper() for name in type(self).model_fields]
        for variable in sorted(
            set_name for set_name in os.environ if set_name.upper().startswith(_PREFIX)
        ):
            name = variable.upper().removeprefix(_PREFIX)
            if name in known or _SERVICE_LINK.match(name):
                continue
            close = difflib.get_close_matches(name, known, n=1)
            meant = f" (did you mean {_PREFIX}{close[0]}?)" if close else ""
            raise ValueError(f"the router has no setting {variable}{meant}")
        return self

    @property
    def shown_gpus(self) -> tuple[str, ...] | None:
        """Names of the GPUs that this process is shown (CUDA_VISIBLE_DEVICES); None: all."""
        shown = os.environ.get("CUDA_VISIBLE_DEVICES")
        if shown is None:
            return None
        return tuple(name.strip() for name in shown.split(",") if name.strip())

    @property
    def most_jobs(self) -> int:
        """Jobs that are active at once; 0: no limit. Two would share the GPUs of one."""
        return 1 if self.gpus else self.max_jobs

    @property
    def copies(self) -> dict[str, str]:
        """The folder of each downloaded hub id, by ``hub_copies``; of an id twice, the first."""
        copies: dict[str, str] = {}
        for entry in filter(None, map(str.strip, self.hub_copies.split(","))):
            hub_id, _, folder = entry.partition("=")
            copies.setdefault(hub_id, folder)
        return copies

    @model_validator(mode="after")
    def _copies_have_folders(self) -> Self:
        for hub_id, folder in self.copies.items():
            if not hub_id or not folder:
                raise ValueError(
                    f"hub_copies has '{hub_id}{'=' if folder else ''}{folder}', which is not "
                    "ID=FOLDER; write Qwen/Qwen3-1.7B=models/Qwen3-1.7B"
                )
        return self

    @property
    def host_names(self) -> tuple[str, ...]:
        """The names in ``hosts``."""
        return tuple(name.strip() for name in self.hosts.split(",") if name.strip())
