"""What stands beside exported weights: which policy each agent of their job has. Pure."""

import json

from troupe.spec.job import JobSpec


def export_document(job_id: str, spec: JobSpec) -> str:
    """Text of ``EXPORT_FILE`` (troupe/runtime/run_folder.py): the agents' policies as in spec.json,
    and what an evaluation needs of each policy beside weights.
    """
    agents = {name: {"policy": agent.policy} for name, agent in spec.agents.items()}
    policies = {
        name: {"chat_template_kwargs": policy.chat_template_kwargs}
        for name, policy in spec.policies.items()
    }
    return json.dumps({"job_id": job_id, "agents": agents, "policies": policies}, indent=2) + "\n"
