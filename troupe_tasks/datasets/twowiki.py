"""2WikiMultihopQA: questions over two to four of ten paragraphs.

Format: https://github.com/Alab-NII/2wikimultihop (``train.json``, ``dev.json``: as HotpotQA's,
with ``evidences``).
"""

from troupe.data.dataset import Dataset
from troupe_tasks.datasets.multihop import converter
from troupe_tasks.search.published import SearchRow

convert = converter("2wiki")

DATASET = Dataset(
    name="2wiki",
    task="search",
    title="2WikiMultihopQA",
    hub_id="xanhho/2WikiMultihopQA",
    splits={"train": ("train.parquet", "train.json"), "test": ("dev.parquet", "dev.json")},
    schema=SearchRow,
    convert=convert,
    licence="Apache-2.0",
    citation="Ho et al. 2020, Constructing A Multi-hop QA Dataset for Comprehensive Evaluation of "
    "Reasoning Steps, arXiv 2011.01060",
    format_source="https://github.com/Alab-NII/2wikimultihop",
    contamination_fields=("question",),
)
