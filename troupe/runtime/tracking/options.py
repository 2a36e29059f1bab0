"""Checks the trackers of a spec, and their options by each tracker's own model."""

from troupe import plugins
from troupe.errors import InvalidArgumentError
from troupe.spec.issues import Issue, SpecInvalidError
from troupe.spec.job import JobSpec


def tracker_issues(spec: JobSpec) -> list[Issue]:
    """Trackers that are unknown, and options that they do not have."""
    issues: list[Issue] = []
    for index, tracker in enumerate(spec.trackers):
        at = f"/trackers/{index}"
        try:
            kind = plugins.load(plugins.TRACKERS, tracker.kind, pointer=f"{at}/kind")
            label = f"tracker '{tracker.kind}'"
            plugins.checked_params(kind, tracker.options, label=label, pointer=f"{at}/options")
        except SpecInvalidError as error:
            issues += error.issues
        except InvalidArgumentError as error:
            issues.append(Issue(error.pointer or "", error.message))
    return issues
