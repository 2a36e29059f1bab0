"""Chooses the number format of policies whose spec names none. Pure."""

from typing import Any

from troupe.spec.job import JobSpec
from troupe.spec.policy import PolicySpec


def with_dtypes(spec: JobSpec) -> JobSpec:
    """``spec`` for GPUs: a policy without a ``dtype`` gets bfloat16.

    A past version of a policy gets that policy's. What is chosen is part of the spec that the run
    folder keeps, so that a resumed job computes as before wherever it goes on.
    """
    policies = {
        name: policy.model_copy(update={"dtype": _chosen(policy, spec)})
        for name, policy in spec.policies.items()
    }
    return spec.model_copy(update={"policies": policies})


def submitted(spec: JobSpec) -> dict[str, Any]:
    """The document of ``spec`` for a router, which chooses each ``dtype`` that was left out."""
    document = spec.model_dump(mode="json")
    for name, policy in spec.policies.items():
        if "dtype" not in policy.model_fields_set:
            del document["policies"][name]["dtype"]
    return document


def _chosen(policy: PolicySpec, spec: JobSpec) -> str:
    if "dtype" in policy.model_fields_set:
        return policy.dtype
    of = spec.policies.get(policy.past.of) if policy.past else None
    return of.dtype if of is not None and "dtype" in of.model_fields_set else "bfloat16"
