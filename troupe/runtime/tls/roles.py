"""Roles of certificates, as DNS names, and the roles that may call each gRPC method.

A certificate names roles, not machines: a pod's address changes with every start. It may name
several, as for a machine on which all services run.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast, get_args

from troupe.api.env.v1 import env_pb2
from troupe.api.rollout.v1 import rollout_pb2
from troupe.api.router.v1 import router_pb2
from troupe.api.trainer.v1 import trainer_pb2

Role = Literal["router", "play", "rollout", "env", "trainer", "redis"]
ROLES: tuple[Role, ...] = get_args(Role)
DOMAIN = "troupe.internal"

_SAN = "x509_subject_alternative_name"
_Methods = Mapping[str, frozenset[Role]]


def host_of(role: Role) -> str:
    """The DNS name of a role: ``router.troupe.internal``."""
    return f"{role}.{DOMAIN}"


def _methods(service: Any, callers: Mapping[str, Iterable[Role]]) -> dict[str, frozenset[Role]]:
    return {f"/{service.full_name}/{name}": frozenset(roles) for name, roles in callers.items()}


_router, _env = router_pb2.DESCRIPTOR.services_by_name, env_pb2.DESCRIPTOR.services_by_name
_rollout, _trainer = (
    rollout_pb2.DESCRIPTOR.services_by_name,
    trainer_pb2.DESCRIPTOR.services_by_name,
)
_MEMBERS: tuple[Role, ...] = ("rollout", "env", "trainer")
_PLAYERS: tuple[Role, ...] = ("router", "play")
"""A router plays itself unless TROUPE_ROUTER_PLAYERS says otherwise."""

CALLERS: _Methods = {
    **_methods(
        _router["RouterService"],
        # A member speaks only of its own kind: see services/router/troupe_router/servicer.py.
        {
            "RegisterReplica": _MEMBERS,
            "SendHeartbeat": _MEMBERS,
            "ListReplicas": ("trainer",),
            "GetBundle": ("env",),
        },
    ),
    **_methods(
        _env["EnvService"],
        {
            "ListTasks": ("router",),
            "Reset": _PLAYERS,
            "Step": _PLAYERS,
            "Observe": _PLAYERS,
            "PlayDryRun": ("router",),
        },
    ),
    **_methods(
        _rollout["RolloutService"],
        {
            "Generate": _PLAYERS,
            "ScoreTokens": (*_PLAYERS, "trainer"),
            "UpdateWeights": ("trainer",),
            "ActivateWeights": ("trainer",),
            "DiscardWeights": ("trainer",),
            "Sleep": ("trainer",),
            "Wake": ("trainer",),
            "GetStatus": (*_PLAYERS, "trainer"),
        },
    ),
    **_methods(
        _trainer["TrainerService"],
        {
            "GetProgress": ("router",),
            "Pause": ("router",),
            "Resume": ("router",),
            "Cancel": ("router",),
        },
    ),
}
"""Full method name to the roles that may call it: the edges of the architecture, and no other."""


def roles_of(names: Iterable[str]) -> frozenset[Role]:
    """The roles among a certificate's DNS names; other names mean nothing here."""
    hosts = set(names)
    return frozenset(role for role in ROLES if host_of(role) in hosts)


def peer_roles(context: Any) -> frozenset[Role] | None:
    """The roles of a gRPC call's peer; None: without TLS a peer has no identity."""
    properties = cast("Mapping[str, Iterable[bytes]]", context.auth_context())
    if b"ssl" not in properties.get("transport_security_type", ()):
        return None
    return roles_of(name.decode("utf-8", "replace") for name in properties.get(_SAN, ()))
