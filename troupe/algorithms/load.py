"""The algorithm that a spec names, with its own parameters and its hooks checked."""

from typing import Any, get_args

from troupe import plugins
from troupe.algorithms.algorithm import Aggregation, Algorithm, Needs, hook_gave, hook_raised
from troupe.algorithms.base import GroupRelative
from troupe.errors import InvalidArgumentError
from troupe.runtime.transient import is_of_code
from troupe.samplers.sampler import Sampler
from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.issues import Issue, SpecInvalidError

_KIND = "/algorithm/kind"
_CALLED_LATER = ("advantages", "across_groups", "loss")
_OF_A_SAMPLER = (*Sampler.__annotations__, "choose")


def load_algorithm(spec: AlgorithmSpec) -> Algorithm:
    """Constructed with ``spec``, and with its ``Params`` where the class declares them.

    Raises InvalidArgumentError for an unknown name, for a class whose constructor, ``needs``,
    ``aggregation``, ``sampler`` or ``sampling`` raises or gives something else, and for one without
    a hook; and SpecInvalidError whose pointers start at /algorithm for wrong parameters, for parts
    that the algorithm does not read and for groups of fewer candidates than it compares.
    """
    kind = plugins.load(plugins.ALGORITHMS, spec.kind, pointer=_KIND)
    label = f"algorithm '{spec.kind}'"
    params = plugins.checked_params(kind, spec.params, label=label, pointer="/algorithm/params")
    algorithm: Algorithm = plugins.constructed(kind, spec, params, label=label, pointer=_KIND)
    _check_hooks(algorithm)
    least = algorithm.needs.candidates
    if spec.group_size < least:
        message = f"'{spec.kind}' compares at least {least} candidates; give {least} or more"
        raise SpecInvalidError([Issue("/algorithm/group_size", message)])
    return algorithm


def _check_hooks(algorithm: Algorithm) -> None:
    """What is read before the first step answers, and what is called later is there."""
    kind = type(algorithm)
    if missing := [name for name in _CALLED_LATER if not callable(getattr(kind, name, None))]:
        raise InvalidArgumentError(
            f"algorithm '{kind.__name__}' has no method {', '.join(missing)}; derive it from "
            "troupe.GroupRelative, or give it all hooks of troupe.Algorithm",
            pointer=_KIND,
        )
    needs = _answer(algorithm, "needs")
    if not isinstance(needs, Needs):
        what = f"a {type(needs).__name__}; make it a property (or an attribute) that gives Needs"
        raise _wrong(algorithm, "needs", what)
    aggregation = _answer(algorithm, "aggregation")
    if not isinstance(aggregation, str) or aggregation not in get_args(Aggregation):
        known = ", ".join(get_args(Aggregation))
        what = f"{aggregation!r}; make it a property (or an attribute) that gives one of {known}"
        raise _wrong(algorithm, "aggregation", what)
    sampler = _answer(algorithm, "sampler", is_called=True)
    if missing := [name for name in _OF_A_SAMPLER if not hasattr(sampler, name)]:
        what = f"a {type(sampler).__name__} without {', '.join(missing)}; give a troupe.Sampler"
        raise _wrong(algorithm, "sampler", what)
    if isinstance(algorithm, GroupRelative) and algorithm.sampling not in ("tree", "parallel"):
        raise _wrong(algorithm, "sampling", f"{algorithm.sampling!r}; make it 'tree' or 'parallel'")


def _answer(algorithm: Algorithm, hook: str, *, is_called: bool = False) -> Any:
    """What a property, or a method without arguments, gives."""
    try:
        value = getattr(algorithm, hook)
        return value() if is_called else value
    except (Exception, SystemExit) as error:
        if not is_of_code(error):
            raise
        message = f"{hook_raised(algorithm, hook, error)}."
        raise InvalidArgumentError(message, pointer=_KIND) from error


def _wrong(algorithm: Algorithm, hook: str, what: str) -> InvalidArgumentError:
    return InvalidArgumentError(hook_gave(algorithm, hook, what), pointer=_KIND)
