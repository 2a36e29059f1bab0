"""HumanEval: hand-written functions with a ``check(candidate)`` each.

Format: https://huggingface.co/datasets/openai/openai_humaneval (task_id, prompt,
canonical_solution, test, entry_point). The prompt is a function head with its docstring; the
published solution is the body alone.
"""

from typing import Any

from troupe.data.dataset import Dataset, RefusedRowError, Row
from troupe.data.fields import optional_text, text
from troupe_tasks.code.problem import Problem
from troupe_tasks.code.published import check_cases, finished, head_and_imports


def convert(row: Row) -> dict[str, Any]:
    """A call problem whose hidden tests are the asserts of ``check``."""
    prompt, entry = str(row.get("prompt") or ""), text(row, "entry_point")
    if not prompt.strip():
        raise RefusedRowError("no_prompt")
    body = str(row.get("canonical_solution") or "")
    return finished(
        {
            "id": f"humaneval/{text(row, 'task_id')}",
            "kind": "call",
            "entry_point": entry,
            "statement": f"Complete this function:\n```python\n{prompt.rstrip()}\n```",
            "prelude": head_and_imports(prompt, entry),
            "hidden_tests": check_cases(text(row, "test"), entry),
            "references": [prompt + body] if body.strip() else [],
            "checker": {"kind": "exact"},
            "source": optional_text(row, "source") or "humaneval",
            "split": "test",
        }
    )


DATASET = Dataset(
    name="humaneval",
    task="code",
    title="HumanEval",
    hub_id="openai/openai_humaneval",
    splits={"test": ("openai_humaneval/test-*.parquet", "HumanEval.jsonl", "HumanEval.jsonl.gz")},
    schema=Problem,
    convert=convert,
    licence="MIT",
    citation="Chen et al. 2021, Evaluating Large Language Models Trained on Code, arXiv 2107.03374",
    format_source="https://huggingface.co/datasets/openai/openai_humaneval",
    contamination_fields=("statement",),
)
