"""HotpotQA, distractor setting: questions over two of ten paragraphs.

Format: https://hotpotqa.github.io (``hotpot_train_v1.1.json``, ``hotpot_dev_distractor_v1.json``:
lists with ``_id``, ``question``, ``answer``, ``type``, ``level``, ``supporting_facts`` as (title,
sentence) and ``context`` as (title, sentences)); the hub's Parquet has ``id`` and the pairs as
columns ``title``, ``sent_id``, ``sentences``.
"""

from troupe.data.dataset import Dataset
from troupe_tasks.datasets.multihop import converter
from troupe_tasks.search.published import SearchRow

convert = converter("hotpotqa")

DATASET = Dataset(
    name="hotpotqa",
    task="search",
    title="HotpotQA (distractor)",
    hub_id="hotpotqa/hotpot_qa",
    splits={
        "train": ("distractor/train-*.parquet", "hotpot_train_v1.1.json"),
        "test": ("distractor/validation-*.parquet", "hotpot_dev_distractor_v1.json"),
    },
    schema=SearchRow,
    convert=convert,
    licence="CC BY-SA 4.0",
    citation="Yang et al. 2018, HotpotQA: A Dataset for Diverse, Explainable Multi-hop Question "
    "Answering, arXiv 1809.09600",
    format_source="https://github.com/hotpotqa/hotpot",
    contamination_fields=("question",),
)
