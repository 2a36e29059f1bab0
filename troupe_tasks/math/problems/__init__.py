"""Problems written by this project: templates by subject, drawn from seeds, answers exact.

Which split owns a problem is a function of its text alone, so no problem is ever in two.
"""

from collections.abc import Mapping

from troupe.tasks.family import Split
from troupe.tasks.splits import split_of_key
from troupe_tasks.math.problems import algebra, arithmetic, combinatorics, geometry, number_theory
from troupe_tasks.math.problems.made import LEVELS, Made, Template

SUBJECTS: Mapping[str, tuple[Template, ...]] = {
    "arithmetic": arithmetic.TEMPLATES,
    "number_theory": number_theory.TEMPLATES,
    "algebra": algebra.TEMPLATES,
    "combinatorics": combinatorics.TEMPLATES,
    "geometry": geometry.TEMPLATES,
}


def split_of(problem: str) -> Split:
    """The one split that owns ``problem``."""
    return split_of_key(problem)


__all__ = ["LEVELS", "SUBJECTS", "Made", "split_of"]
