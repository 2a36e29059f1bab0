"""The algorithm that a spec names, with its own parameters checked."""

from troupe import plugins
from troupe.algorithms.algorithm import Algorithm
from troupe.spec.algorithm import AlgorithmSpec


def load_algorithm(spec: AlgorithmSpec) -> Algorithm:
    """Constructed with ``spec``, and with its ``Params`` where the class declares them.

    Raises InvalidArgumentError for an unknown name, and SpecInvalidError whose pointers start at
    /algorithm for wrong parameters and for parts that the algorithm does not read.
    """
    kind = plugins.load(plugins.ALGORITHMS, spec.kind, pointer="/algorithm/kind")
    params = plugins.checked_params(
        kind, spec.params, label=f"algorithm '{spec.kind}'", pointer="/algorithm/params"
    )
    return kind(spec) if params is None else kind(spec, params)
