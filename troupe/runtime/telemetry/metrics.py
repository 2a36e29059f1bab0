"""Every Prometheus metric of Troupe, in one place.

Names start with ``troupe_`` and end in their unit; labels are job, policy, agent, replica and small
fixed sets, never a task or an episode.
"""

from collections.abc import Iterable
from itertools import product

from prometheus_client import Counter, Gauge, Histogram

_SLOW_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
_FAST_S = (0.001, 0.005, 0.01, 0.025, 0.05, *_SLOW_S)

GRPC_REQUESTS = Counter("troupe_grpc_requests_total", "Answered gRPC calls.", ["method", "code"])
GRPC_SECONDS = Histogram(
    "troupe_grpc_request_seconds", "Time to answer a gRPC call.", ["method"], buckets=_FAST_S
)
IS_SERVING = Gauge("troupe_service_is_serving", "1 while the service takes work.", ["service"])

ENV_ACTIONS = Counter(
    "troupe_env_actions_total", "Judged actions, by whether they solved the task.", ["success"]
)
ENV_STEP_SECONDS = Histogram(
    "troupe_env_step_seconds", "Time to judge the K actions of one request.", buckets=_FAST_S
)
ENV_REFUSED_STATES = Counter(
    "troupe_env_refused_states_total",
    "States that were not judged: changed (the seal does not fit) or unreadable (no seal).",
    ["reason"],
)
ENV_QUEUED = Gauge("troupe_env_in_flight_requests", "Requests queued or being judged.")
ENV_FAMILIES = Gauge("troupe_env_cached_environments", "Constructed environments in the cache.")
ENV_BUNDLES = Gauge("troupe_env_bundles", "Bundles (code that jobs bring along) with a process.")

ENV_HUNG_THREADS = Gauge(
    "troupe_env_hung_threads", "Threads that judge past their request's deadline."
)
ENV_SANDBOX_RUNS = Counter(
    "troupe_env_sandbox_runs_total",
    "Programs run, by outcome: ok, failed, broken, or the limit that ended them.",
    ["outcome"],
)
ENV_SANDBOX_SECONDS = Histogram(
    "troupe_env_sandbox_run_seconds", "Time of one program in its worker.", buckets=_FAST_S
)
ENV_SANDBOX_WAITING = Gauge(
    "troupe_env_sandbox_waiting_programs", "Programs that wait for a sandbox worker."
)
ENV_SANDBOX_REPLACED = Counter(
    "troupe_env_sandbox_workers_replaced_total", "Sandbox workers that broke and were replaced."
)
ENV_PROGRAM_RUNS = Counter(
    "troupe_env_program_runs_total",
    "Runs of agent programs, by how they ended: answered, or the kind of the failure.",
    ["end"],
)
ENV_PROGRAM_DIVERGED = Counter(
    "troupe_env_program_diverged_total",
    "Replays of an agent program that asked something else than the first time.",
)
ENV_PROGRAM_OVERRIDDEN = Counter(
    "troupe_env_program_overridden_total",
    "Fields that an agent program sent and that its policies do not follow, such as sampling.",
    ["field"],
)

SERVE_REQUESTS = Counter(
    "troupe_serve_requests_total", "Requests to a served team, by HTTP status.", ["model", "code"]
)
SERVE_SECONDS = Histogram(
    "troupe_serve_request_seconds",
    "Time to answer a request to a served team, waiting included.",
    ["model"],
    buckets=_SLOW_S,
)
SERVE_TOKENS = Counter(
    "troupe_serve_tokens_total", "Tokens of answered requests, by kind.", ["model", "kind"]
)
SERVE_IN_FLIGHT = Gauge("troupe_serve_in_flight_requests", "Requests that are being answered.")
SERVE_WAITING = Gauge("troupe_serve_waiting_requests", "Requests that wait for their turn.")

ROLLOUT_TOKENS = Counter(
    "troupe_rollout_tokens_total", "Tokens, by kind.", ["job_id", "policy", "kind"]
)
ROLLOUT_SECONDS = Histogram(
    "troupe_rollout_generate_seconds", "Time in the engine.", ["job_id", "policy"], buckets=_FAST_S
)
ROLLOUT_IN_FLIGHT = Gauge(
    "troupe_rollout_in_flight_candidates", "Candidates queued or generated.", ["job_id"]
)
ROLLOUT_VERSION = Gauge(
    "troupe_rollout_policy_version", "Version that answers.", ["job_id", "policy"]
)
ROLLOUT_WEIGHTS_BYTES = Counter(
    "troupe_rollout_weights_bytes_total", "Received.", ["job_id", "policy"]
)
ROLLOUT_WEIGHTS_SECONDS = Histogram(
    "troupe_rollout_weights_seconds",
    "Time to receive, stage or activate.",
    ["job_id", "phase"],
    buckets=_SLOW_S,
)
ROLLOUT_TURN_SECONDS = Histogram(
    "troupe_rollout_turn_seconds",
    "Time to hand a shared device to the trainer (asleep) or take it back (awake).",
    ["state"],
    buckets=_SLOW_S,
)

WEIGHTS_PHASE_SECONDS = Gauge(
    "troupe_weights_phase_seconds",
    "Time of the newest push in a phase: export, transfer, stage, canary, activate.",
    ["job_id", "policy", "replica", "phase"],
)
WEIGHTS_CANARY_ERROR = Gauge(
    "troupe_weights_canary_error_nats",
    "Largest difference of a canary logprob between trainer and replica at the newest push.",
    ["job_id", "policy", "replica"],
)
WEIGHTS_PUSHES = Counter(
    "troupe_weights_pushes_total",
    "Pushes, by outcome: published, refused, caught_up (one late replica).",
    ["job_id", "policy", "outcome"],
)

ROUTER_TICKETS = Counter(
    "troupe_router_tickets_total", "Tickets that ended, by outcome.", ["job_id", "outcome"]
)
ROUTER_IN_FLIGHT = Gauge("troupe_router_in_flight_episodes", "Episodes being played.", ["job_id"])
ROUTER_EPISODE_SECONDS = Histogram(
    "troupe_router_episode_seconds", "Wall time of an episode.", ["job_id"], buckets=_SLOW_S
)
ROUTER_REPLICAS = Gauge("troupe_router_replicas", "Living replicas.", ["kind"])
ROUTER_POLICY_REPLICAS = Gauge(
    "troupe_router_policy_replicas",
    "Serving rollout replicas of a policy; policies of one pool share them.",
    ["job_id", "pool", "policy"],
)
ROUTER_JOBS = Gauge("troupe_router_jobs", "Jobs, by state.", ["state"])
ROUTER_RUN_BYTES = Gauge(
    "troupe_router_run_folders_bytes", "On disk in the jobs' run folders, at the latest retention."
)
ROUTER_FREED_BYTES = Counter(
    "troupe_router_run_folders_freed_bytes_total", "Removed with run folders by retention."
)
ROUTER_ROUTED = Counter(
    "troupe_router_requests_total",
    "Calls sent to replicas, by kind (rollout, env) and outcome.",
    ["job_id", "kind", "replica", "outcome"],
)
ROUTER_AFFINITY = Counter(
    "troupe_router_affinity_total",
    "Generate calls sent: hit (to the replica that was sent the prompt's prefix before), spill "
    "(that one was loaded) or miss (no replica knew more of the prompt than the others).",
    ["job_id", "policy", "affinity"],
)
ROUTER_PROMPT_TOKENS = Counter(
    "troupe_router_prompt_tokens_total",
    "Prompt tokens over all candidates, as engines say: cached or computed.",
    ["job_id", "policy", "source"],
)
ROUTER_WAITING = Gauge(
    "troupe_router_waiting_calls", "Generate calls that wait for a replica with room.", ["job_id"]
)
ROUTER_REFUSED = Counter(
    "troupe_router_refused_calls_total",
    "Generate calls that were refused because too many were under way.",
    ["job_id"],
)

JOB_STEP = Gauge("troupe_job_step", "Training steps that are done.", ["job_id"])
JOB_NUM_STEPS = Gauge("troupe_job_planned_steps", "Training steps of the job.", ["job_id"])
JOB_SUCCESS = Gauge("troupe_job_success_ratio", "Share of solved episodes.", ["job_id", "kind"])
JOB_REWARD = Gauge("troupe_job_reward_mean", "Mean reward of a step.", ["job_id", "agent"])
JOB_VALUE = Gauge(
    "troupe_job_learning_value",
    "Newest value of a learning metric: loss, kl_rollout, entropy, clip_fraction, grad_norm, ...",
    ["job_id", "policy", "name"],
)
JOB_PHASE_SECONDS = Counter(
    "troupe_job_phase_seconds_total", "Time of the recorded steps, by phase.", ["job_id", "phase"]
)
JOB_STEP_SECONDS = Histogram(
    "troupe_job_step_seconds", "Wall time of a training step.", ["job_id"], buckets=_SLOW_S
)
JOB_GROUPS = Counter(
    "troupe_job_groups_total", "Groups, by what became of them.", ["job_id", "outcome"]
)
JOB_TOKENS = Counter("troupe_job_tokens_total", "Tokens, by kind.", ["job_id", "kind"])
JOB_PARITY_ALARMS = Counter(
    "troupe_job_parity_alarms_total",
    "Steps in which a policy's rollout and trainer disagreed about its logprobs.",
    ["job_id", "policy"],
)
JOB_PUSHES_REFUSED = Counter(
    "troupe_job_pushes_refused_total",
    "Pushes that a replica refused for good, by cause: canary (its logprobs differ) or other.",
    ["job_id", "policy", "cause"],
)
JOB_REWARD_SUSPECTS = Counter(
    "troupe_job_reward_suspects_total",
    "Times that the reward rose while success, diversity or a stricter judge's score fell.",
    ["job_id"],
)
JOB_RESTARTS = Counter(
    "troupe_job_component_restarts_total",
    "Processes of the job that ended and came back.",
    ["job_id"],
)
JOB_WAITING_SECONDS = Gauge(
    "troupe_job_phase_age_seconds", "How long the present phase lasts.", ["job_id", "phase"]
)
JOB_OVERDUE = Gauge(
    "troupe_job_phase_is_overdue", "1 while the phase exceeds its deadline.", ["job_id", "phase"]
)
JOB_STREAM_ENTRIES = Gauge(
    "troupe_job_stream_entries",
    "Unacknowledged entries of a stream.",
    ["job_id", "stream"],
)
JOB_VERSION_LAG = Gauge(
    "troupe_job_replica_version_lag",
    "Committed version minus the one that a serving replica has.",
    ["job_id", "replica"],
)
RUNS_FREE_BYTES = Gauge("troupe_router_runs_free_bytes", "Free space where run folders are.")
RUNS_SIZE_BYTES = Gauge("troupe_router_runs_size_bytes", "Size of the volume of run folders.")
REDIS_USED_BYTES = Gauge("troupe_router_redis_used_bytes", "Memory that Redis counts as used.")
REDIS_LIMIT_BYTES = Gauge("troupe_router_redis_limit_bytes", "Redis' maxmemory; 0: no limit.")
REDIS_UNREACHABLE = Gauge(
    "troupe_router_redis_is_unreachable", "1 while Redis does not answer the router."
)

TRACKER_LINES = Counter(
    "troupe_tracker_lines_total", "Lines for experiment trackers, by outcome.", ["kind", "outcome"]
)


def start_at_zero(counter: Counter, *values: Iterable[str]) -> None:
    """Show a series of ``counter`` for each combination of values of its labels.

    Prometheus computes an increase between two samples: of a series that begins with its first
    event, that event is never seen, and an alert on one event never fires.

    Example: ``start_at_zero(WEIGHTS_PUSHES, [job_id], policies, ["published", "refused"])``.
    """
    for labels in product(*values):
        counter.labels(*labels).inc(0)
