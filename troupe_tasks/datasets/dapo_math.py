"""DAPO-Math-17k: training problems with integer answers.

Format: https://huggingface.co/datasets/BytedTsinghua-SIA/DAPO-Math-17k (columns data_source,
prompt, a list of one chat message, ability, reward_model with ground_truth and style, extra_info
with index). The published file holds each problem about a hundred times; preparing keeps one.
https://huggingface.co/datasets/open-r1/DAPO-Math-17k-Processed (prompt and solution as plain text)
is read too.
"""

from typing import Any

from troupe.data.dataset import Dataset, RefusedRowError, Row
from troupe.data.fields import record, text
from troupe_tasks.math.row import MathRow

BEFORE = "\n\n"
INSTRUCTION = "solve the following math problem"
AFTER = "remember to put your answer on its own line"


def convert(row: Row) -> dict[str, Any]:
    """A math row: the problem without the publisher's instructions around it."""
    info = row.get("extra_info")
    index = text(record(info, "no_index"), "index")
    answer = row.get("reward_model")
    return {
        "id": f"dapo_math/{index}",
        "problem": _problem(_prompt(row)),
        "answer": text(record(answer, "no_ground_truth"), "ground_truth"),
        "source": "dapo_math",
    }


def _prompt(row: Row) -> str:
    prompt = row.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        return text(record(prompt[0], "no_prompt"), "content")
    if isinstance(prompt, list):
        raise RefusedRowError("not_one_message")
    return text(row, "prompt")


def _problem(prompt: str) -> str:
    """The paragraphs of ``prompt`` between the instructions that the publisher put around."""
    paragraphs = prompt.split(BEFORE)
    if paragraphs and paragraphs[0].lower().startswith(INSTRUCTION):
        paragraphs = paragraphs[1:]
    if paragraphs and paragraphs[-1].lower().startswith(AFTER):
        paragraphs = paragraphs[:-1]
    if not (problem := BEFORE.join(paragraphs).strip()):
        raise RefusedRowError("no_problem")
    return problem


DATASET = Dataset(
    name="dapo_math",
    task="math",
    title="DAPO-Math-17k",
    hub_id="BytedTsinghua-SIA/DAPO-Math-17k",
    splits={"train": ("data/*.parquet", "en/train-*.parquet")},
    schema=MathRow,
    convert=convert,
    licence="Apache-2.0",
    citation=(
        "Yu et al. 2025, DAPO: An Open-Source LLM Reinforcement Learning System at Scale, "
        "arXiv 2503.14476"
    ),
    format_source="https://huggingface.co/datasets/BytedTsinghua-SIA/DAPO-Math-17k",
)
