"""Cross-field rules of a JobSpec: faults that are detectable before anything starts."""

from pathlib import Path

from troupe.spec.issues import Issue, suggest
from troupe.spec.job import JobSpec
from troupe.spec.policy import PolicySpec, teacher_name
from troupe.spec.reward import RewardSpec


def cross_field_issues(spec: JobSpec) -> list[Issue]:
    """All inconsistencies between the fields of the spec."""
    return [
        *_workflow(spec),
        *_agents(spec),
        *_past(spec),
        *_learning(spec),
        *_follow(spec),
        *_rewards(spec),
        *_sampling(spec),
        *_teachers(spec),
        *_loss(spec),
        *_overlong(spec),
        *_staleness(spec),
        *_per_policy(spec),
        *_tail(spec),
    ]


def _workflow(spec: JobSpec) -> list[Issue]:
    issues = [
        Issue(f"/workflow/order/{i}", f"no agent is called '{name}'; {suggest(name, spec.agents)}")
        for i, name in enumerate(spec.workflow.order)
        if name not in spec.agents
    ]
    issues += [
        Issue(f"/agents/{name}", "this agent never acts; add it to /workflow/order or remove it")
        for name in spec.agents
        if name not in spec.workflow.order
    ]
    if len(set(spec.workflow.order)) != len(spec.workflow.order):
        issues.append(Issue("/workflow/order", "an agent acts once in a turn; remove the repeat"))
    return issues


def _agents(spec: JobSpec) -> list[Issue]:
    return [
        Issue(
            f"/agents/{name}/policy",
            f"no policy is called '{agent.policy}'; {suggest(agent.policy, spec.policies)}",
        )
        for name, agent in spec.agents.items()
        if agent.policy not in spec.policies
    ]


def _follow(spec: JobSpec) -> list[Issue]:
    """Followed agents are the job's, each named once."""
    agents = spec.algorithm.follow.agents if spec.algorithm.follow else []
    issues = [
        Issue(
            f"/algorithm/follow/agents/{i}",
            f"no agent is called '{name}'; {suggest(name, spec.agents)}",
        )
        for i, name in enumerate(agents)
        if name not in spec.agents
    ]
    if len(set(agents)) != len(agents):
        issues.append(Issue("/algorithm/follow/agents", "an agent is named once; remove repeats"))
    return issues


def _rewards(spec: JobSpec) -> list[Issue]:
    return [
        *_reward_function(spec.reward),
        *_reward_weights(spec),
    ]


def _reward_function(reward: RewardSpec) -> list[Issue]:
    """Settings of a reward function require a reward function."""
    if reward.kind:
        return []
    fields = {
        "name": reward.name,
        "params": reward.params,
        "weight": reward.weight != 1.0,
        "mode": reward.mode == "replace",
    }
    message = "there is no reward function that this is about; add `kind: module:function`"
    return [Issue(f"/reward/{field}", message) for field, is_given in fields.items() if is_given]


def _reward_weights(spec: JobSpec) -> list[Issue]:
    return [
        Issue(
            f"/reward/weights/{name}", f"no agent is called '{name}'; {suggest(name, spec.agents)}"
        )
        for name in spec.reward.weights
        if name not in spec.agents
    ]


def _tail(spec: JobSpec) -> list[Issue]:
    """A limit on the tail that could never drop a ticket."""
    droppable = int(spec.limits.max_dropped_fraction * spec.tasks_per_step)
    if spec.limits.tail_timeout_s is None or droppable:
        return []
    message = (
        f"no ticket of {spec.tasks_per_step} may be dropped with max_dropped_fraction = "
        f"{spec.limits.max_dropped_fraction:g}; raise it, or leave this out"
    )
    return [Issue("/limits/tail_timeout_s", message)]


def _loss(spec: JobSpec) -> list[Issue]:
    """Loss settings that would have no effect, or not the intended one."""
    loss = spec.algorithm.loss
    issues: list[Issue] = []
    if loss.kl.coef > 0.0 and loss.kl.where == "loss" and loss.kl.estimator == "k1":
        issues.append(
            Issue(
                "/algorithm/loss/kl/estimator",
                "k1's gradient is 0 on average; use k2 or k3, or where: reward",
            )
        )
    if loss.kl.adaptive is not None and loss.kl.coef == 0.0:
        message = "a coefficient of 0 stays 0; give that of the first step, such as coef: 0.05"
        issues.append(Issue("/algorithm/loss/kl/coef", message))
    adaptive = loss.adaptive_entropy
    if adaptive is not None and loss.entropy_coef > adaptive.max_coef:
        message = f"begins above adaptive_entropy's max_coef, {adaptive.max_coef:g}; lower it"
        issues.append(Issue("/algorithm/loss/entropy_coef", message))
    if not loss.positive_advantage_weight and not loss.negative_advantage_weight:
        message = "with positive_advantage_weight 0 too no advantage counts; raise one of them"
        issues.append(Issue("/algorithm/loss/negative_advantage_weight", message))
    if loss.dual_clip is not None and loss.kind != "ppo_clip":
        issues.append(
            Issue("/algorithm/loss/dual_clip", f"only ppo_clip has it; '{loss.kind}' ignores it")
        )
    return issues


def _overlong(spec: JobSpec) -> list[Issue]:
    """The penalty's buffer lies inside every agent's token limit."""
    overlong = spec.algorithm.overlong
    if overlong is None:
        return []
    limits = {name: spec.sampling_for(name).max_new_tokens for name in spec.agents}
    return [
        Issue(
            "/algorithm/overlong/buffer",
            f"is more than the {limit} tokens that agent '{name}' may write (max_new_tokens); "
            "give fewer",
        )
        for name, limit in limits.items()
        if overlong.buffer > limit
    ]


def _staleness(spec: JobSpec) -> list[Issue]:
    """Training on groups of older weights requires the correction for it."""
    if spec.updates_in_flight and not spec.max_staleness:
        why = "needs weights that change while a step is played"
        return [Issue("/updates_in_flight", f"{why}; set max_staleness to 1 or more")]
    if not spec.max_staleness or spec.algorithm.loss.importance is not None:
        return []
    why = "max_staleness above 0 needs the correction for older weights"
    return [Issue("/algorithm/loss/importance", f"{why}; add `importance: {{}}`")]


def submission_issues(spec: JobSpec) -> list[Issue]:
    """Refused at submission; older jobs may have it, and are read and go on."""
    return [*_best(spec), *_importance(spec), *_useless_teachers(spec)]


def _importance(spec: JobSpec) -> list[Issue]:
    """A cap that would make all weights equal that the mask keeps."""
    importance = spec.algorithm.loss.importance
    mask = importance.mask if importance else None
    if not importance or not mask or importance.level != mask.level or importance.cap > mask.low:
        return []
    why = f"cuts every weight to it, as the mask keeps none below its low, {mask.low:g}"
    message = f"{why}; raise it, to the mask's high for IcePop"
    return [Issue("/algorithm/loss/importance/cap", message)]


def _best(spec: JobSpec) -> list[Issue]:
    """A best step that can't be told."""
    if not spec.checkpoint.keep_best or spec.algorithm.alternate is None:
        return []
    why = "with algorithm.alternate each step has the rewards of another policy's agents alone"
    message = f"{why}, by which no best step can be chosen; set keep_best: 0"
    return [Issue("/checkpoint/keep_best", message)]


def _useless_teachers(spec: JobSpec) -> list[Issue]:
    """Teachers that teach nothing, or are none."""
    issues: list[Issue] = []
    for name, policy in spec.policies.items():
        if policy.teacher is None:
            continue
        named = spec.policies.get(policy.teacher)
        if named is not None and policy.teacher != named.model:
            message = (
                f"'{policy.teacher}' is a policy of this job, and a teacher is a model: name "
                f"'{named.model}', or ./{policy.teacher} for a folder of that name"
            )
        elif _same_model(policy.teacher, policy.model) and _by_teacher_alone(spec):
            message = (
                "is the policy's own model, so at each token both agree and nothing is learnt; "
                "name another model, or give /algorithm/params/reward_coef"
            )
        else:
            continue
        issues.append(Issue(f"/policies/{name}/teacher", message))
    return issues


def _same_model(one: str, other: str) -> bool:
    return Path(one).expanduser() == Path(other).expanduser()


def _by_teacher_alone(spec: JobSpec) -> bool:
    """Whether nothing but a teacher moves the weights of the job's policies."""
    algorithm = spec.algorithm
    others = (
        algorithm.params.get("reward_coef"),
        algorithm.demonstrations,
        algorithm.loss.entropy_coef,
        algorithm.loss.adaptive_entropy,
    )
    return spec.steps > 0 and algorithm.kind == "distill" and not any(others)


def _per_policy(spec: JobSpec) -> list[Issue]:
    """Settings that need several policies in one trainer; see ``refuse_across_policies``."""
    if not spec.trainer.per_policy:
        return []
    remedy = "set /trainer/per_policy to false"
    issues = [
        Issue(
            f"/policies/{name}/past/every",
            f"a separate trainer can't take over the weights of '{policy.past.of}', which "
            f"another process trains; {remedy}, or set every: 0",
        )
        for name, policy in spec.policies.items()
        if policy.past is not None and policy.past.every
    ]
    if spec.checkpoint.keep_best:
        message = f"the best step is chosen by the reward of all agents; {remedy}, or keep_best: 0"
        issues.append(Issue("/checkpoint/keep_best", message))
    return issues


def _sampling(spec: JobSpec) -> list[Issue]:
    """Training needs the exact distribution that a learning policy's agents sampled from."""
    if spec.steps == 0:  # an evaluation trains nothing
        return []
    issues: list[Issue] = []
    for name, agent in spec.agents.items():
        if agent.policy not in spec.policies or not spec.trains(agent.policy):
            continue
        sampling = spec.sampling_for(name)
        wrong = {
            "temperature": ("a temperature above 0", sampling.temperature == 0.0),
            "top_p": ("top_p 1", sampling.top_p < 1.0),
            "top_k": ("top_k 0", sampling.top_k > 0),
        }
        issues += [
            Issue(
                spec.sampling_pointer(name, field),
                f"training needs {needed}; use it in /eval/sampling, or for frozen agents alone",
            )
            for field, (needed, is_wrong) in wrong.items()
            if is_wrong
        ]
    return list(dict.fromkeys(issues))


def _teachers(spec: JobSpec) -> list[Issue]:
    """A teacher that is served has a name that is free, and scores at temperature 1 alone."""
    issues: list[Issue] = []
    for name, policy in spec.policies.items():
        pointer = f"/policies/{name}/teacher_replicas"
        if policy.teacher_replicas is None:
            continue
        if policy.teacher is None:
            issues.append(Issue(pointer, "there is no teacher to serve; name it in teacher"))
        if (served := teacher_name(name)) in spec.policies:
            message = f"its replicas would serve it as '{served}', as a policy is called; rename it"
            issues.append(Issue(pointer, message))
    for name, agent in spec.agents.items():
        policy, sampling = spec.policies.get(agent.policy), spec.sampling_for(name)
        if policy is None or policy.teacher_replicas is None or sampling.temperature == 1.0:
            continue
        message = (
            f"'{agent.policy}' has a teacher that rollout replicas serve, and engines score given "
            "tokens at temperature 1 alone; set it to 1, or leave teacher_replicas out"
        )
        issues.append(Issue(spec.sampling_pointer(name, "temperature"), message))
    return issues


def _past(spec: JobSpec) -> list[Issue]:
    """A past version belongs to a trained policy; copying its weights requires the same kind."""
    trained = {name: policy for name, policy in spec.policies.items() if spec.trains(name)}
    issues: list[Issue] = []
    for name, policy in spec.policies.items():
        past, pointer = policy.past, f"/policies/{name}/past"
        if past is None:
            continue
        present = trained.get(past.of)
        if present is None:
            message = f"no trained policy is called '{past.of}'; {suggest(past.of, trained)}"
            issues.append(Issue(f"{pointer}/of", message))
        elif past.every and _kind(policy) != _kind(present):
            message = f"taking over weights needs model, train and dtype as in '{past.of}'"
            issues.append(Issue(f"{pointer}/every", f"{message}; make them equal, or set every: 0"))
    return issues


def _kind(policy: PolicySpec) -> tuple[object, ...]:
    return policy.model, policy.train, policy.dtype


def _learning(spec: JobSpec) -> list[Issue]:
    """At least one policy learns, and only learning policies take turns."""
    trained = [name for name in spec.policies if spec.trains(name)]
    issues = [
        Issue(f"/policies/{name}/frozen", "a past version is never trained; remove frozen or past")
        for name, policy in spec.policies.items()
        if policy.frozen and policy.past is not None
    ]
    if not trained and spec.steps:
        issues.append(Issue("/policies", "no policy learns; thaw one, or set steps: 0"))
    order = spec.algorithm.alternate.order if spec.algorithm.alternate else []
    issues += [
        Issue(
            f"/algorithm/alternate/order/{i}",
            f"no trained policy is called '{name}'; {suggest(name, trained)}",
        )
        for i, name in enumerate(order)
        if name not in trained
    ]
    if len(set(order)) != len(order):
        issues.append(Issue("/algorithm/alternate/order", "a policy is named once; remove repeats"))
    return issues
