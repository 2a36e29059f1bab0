import pytest

from troupe import plugins
from troupe.errors import InvalidArgumentError
from troupe_tasks.importers.reasoning_gym import ReasoningGymTask
from troupe_tasks.importers.verifiers import VerifiersEnvironment


def test_task_when_its_prefix_has_an_importer_then_is_the_importers_family() -> None:
    family = plugins.load(plugins.TASKS, "reasoning_gym:countdown")
    assert issubclass(family, ReasoningGymTask)
    assert family.name == "reasoning_gym:countdown"
    assert family.dataset == "countdown"
    assert plugins.load(plugins.TASKS, "reasoning_gym:countdown") is family


def test_environment_when_an_owner_stands_before_it_then_is_named_whole() -> None:
    family = plugins.load(plugins.TASKS, "verifiers:primeintellect/math-group")
    assert issubclass(family, VerifiersEnvironment)
    assert family.package == "primeintellect/math-group"


@pytest.mark.parametrize(
    "name", ["reasoning_gym:../x", "reasoning_gym:os.path", "verifiers:a:b", "verifiers:/x"]
)
def test_task_when_what_follows_the_prefix_is_no_name_then_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="is no name"):
        plugins.load(plugins.TASKS, name)


def test_importer_when_modules_are_limited_then_loads_as_a_registered_name_does() -> None:
    with plugins.only_modules([]):
        plugins.check("verifiers:wordle")
        assert plugins.load(plugins.TASKS, "verifiers:wordle")
        with pytest.raises(InvalidArgumentError, match="may not load"):
            plugins.load(plugins.TASKS, "os:getcwd")


def test_prefix_when_the_group_is_not_tasks_then_is_a_module() -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be imported"):
        plugins.load(plugins.REWARDS, "verifiers:wordle")
