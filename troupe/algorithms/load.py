"""The algorithm that a spec names, with its own parameters checked."""

from troupe import plugins
from troupe.algorithms.algorithm import Algorithm
from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.issues import Issue, SpecInvalidError


def load_algorithm(spec: AlgorithmSpec) -> Algorithm:
    """Constructed with ``spec``, and with its ``Params`` where the class declares them.

    Raises InvalidArgumentError for an unknown name, and SpecInvalidError whose pointers start at
    /algorithm for wrong parameters, for parts that the algorithm does not read and for groups of
    fewer candidates than it compares.
    """
    kind = plugins.load(plugins.ALGORITHMS, spec.kind, pointer="/algorithm/kind")
    params = plugins.checked_params(
        kind, spec.params, label=f"algorithm '{spec.kind}'", pointer="/algorithm/params"
    )
    algorithm: Algorithm = kind(spec) if params is None else kind(spec, params)
    least = algorithm.needs.candidates
    if spec.group_size < least:
        message = f"'{spec.kind}' compares at least {least} candidates; give {least} or more"
        raise SpecInvalidError([Issue("/algorithm/group_size", message)])
    return algorithm
