"""The workflow that a spec names, with its own parameters checked."""

from troupe import plugins
from troupe.spec.job import WorkflowSpec
from troupe.workflows.workflow import Workflow


def load_workflow(spec: WorkflowSpec) -> Workflow:
    """Constructed with ``spec``, and with its ``Params`` where the class declares them.

    Raises InvalidArgumentError for an unknown name and for a class whose constructor raises, and
    SpecInvalidError whose pointers start at /workflow for wrong parameters.
    """
    kind = plugins.load(plugins.WORKFLOWS, spec.kind, pointer="/workflow/kind")
    label = f"workflow '{spec.kind}'"
    params = plugins.checked_params(kind, spec.params, label=label, pointer="/workflow/params")
    return plugins.constructed(kind, spec, params, label=label, pointer="/workflow/kind")
