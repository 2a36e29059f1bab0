"""CoopHumanEval: functions that fall into a helper and a main part, for two agents.

Format: https://huggingface.co/datasets/OpenMLRL/CoopHumanEval (task_id, prompt, test,
entry_point; one split, ``test``), as HumanEval but without a published solution.
"""

from typing import Any

from troupe.data.dataset import Dataset, Row
from troupe.data.fields import text
from troupe_tasks.code.problem import Problem
from troupe_tasks.datasets import humaneval


def convert(row: Row) -> dict[str, Any]:
    """As HumanEval; the task is for ``code_cooperative`` or for ``code``."""
    return {
        **humaneval.convert(row),
        "id": f"coophumaneval/{text(row, 'task_id')}",
        "source": "coophumaneval",
    }


DATASET = Dataset(
    name="coophumaneval",
    task="code",
    title="CoopHumanEval",
    hub_id="OpenMLRL/CoopHumanEval",
    splits={"test": ("data/test-*.parquet",)},
    schema=Problem,
    convert=convert,
    licence="Apache-2.0",
    citation="Liu et al. 2025, LLM Collaboration With Multi-Agent Reinforcement Learning, "
    "arXiv 2508.04652",
    format_source="https://huggingface.co/datasets/OpenMLRL/CoopHumanEval",
    contamination_fields=("statement",),
)
