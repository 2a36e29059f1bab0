"""What a ValidatingAdmissionPolicy says to a request, where no API server of 1.30 or newer is."""

from typing import Any

import cel
from kube_attacks import Request

Object = dict[str, Any]


class Policy:
    """A policy's CEL on one request at a time. Knows no defaults that a server fills in."""

    def __init__(self, manifest: Object) -> None:
        spec = manifest["spec"]
        assert spec["failurePolicy"] == "Fail"
        self._rules: list[Object] = spec["matchConstraints"]["resourceRules"]
        self._conditions = [cel.compile(c["expression"]) for c in spec["matchConditions"]]
        self._variables = {v["name"]: cel.compile(v["expression"]) for v in spec["variables"]}
        self._validations = [
            (str(v["message"]), cel.compile(v["expression"])) for v in spec["validations"]
        ]

    @property
    def messages(self) -> list[str]:
        """Of all validations."""
        return [message for message, _ in self._validations]

    def refusals(self, request: Request, user: str) -> list[str]:
        """The messages against it; empty when it is let through, or is none of the policy's."""
        # Made once: a context for each expression would convert the objects each time.
        world = cel.Context()
        asked = {
            "operation": request.operation,
            "resource": {"resource": request.resource},
            "subResource": request.subresource,
            "userInfo": {"username": user},
        }
        for name, value in (
            ("request", asked),
            ("object", request.body),
            ("oldObject", request.old),
        ):
            world.add_variable(name, value)
        if not self._matches(request) or not all(c.execute(world) for c in self._conditions):
            return []
        variables: Object = {}
        world.add_variable("variables", variables)
        for name, expression in self._variables.items():
            variables[name] = expression.execute(world)
            world.add_variable("variables", variables)
        found: list[str] = []
        for message, expression in self._validations:
            try:
                is_valid = expression.execute(world)
            except Exception as error:
                found.append(f"failed: {error!r}, where the rule is: {message}")
                continue
            if is_valid is not True:
                found.append(message)
        return found

    def _matches(self, request: Request) -> bool:
        group = request.group.rpartition("/")[0]
        return any(
            group in rule["apiGroups"]
            and request.operation in rule["operations"]
            and rule["resources"] == ["*/*"]
            for rule in self._rules
        )
