"""The workflow that a spec names, with its own parameters checked."""

from troupe import plugins
from troupe.spec.job import WorkflowSpec
from troupe.workflows.workflow import Workflow


def load_workflow(spec: WorkflowSpec) -> Workflow:
    """Constructed with ``spec``, and with its ``Params`` where the class declares them.

    Raises InvalidArgumentError for an unknown name, and SpecInvalidError whose pointers start at
    /workflow for wrong parameters.
    """
    kind = plugins.load(plugins.WORKFLOWS, spec.kind, pointer="/workflow/kind")
    params = plugins.checked_params(
        kind, spec.params, label=f"workflow '{spec.kind}'", pointer="/workflow/params"
    )
    return kind(spec) if params is None else kind(spec, params)
