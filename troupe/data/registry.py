"""The data sets that installed packages offer: entry points ``troupe.datasets``."""

from collections.abc import Mapping
from functools import cache

from troupe import plugins
from troupe.data.dataset import Dataset
from troupe.errors import NotFoundError
from troupe.spec.issues import suggest


@cache
def known_datasets() -> Mapping[str, Dataset]:
    """Name to data set, in order of name."""
    return {
        name: plugins.load(plugins.DATASETS, name) for name in plugins.registered(plugins.DATASETS)
    }


def find_dataset(name: str) -> Dataset:
    """The data set called ``name``; raises NotFoundError that names the known ones."""
    datasets = known_datasets()
    if name not in datasets:
        raise NotFoundError(f"no data set is called '{name}'; {suggest(name, datasets)}")
    return datasets[name]
