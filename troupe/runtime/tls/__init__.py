"""Mutual TLS between the services: a process's identity and trust. See docs/security.md."""

from troupe.runtime.tls.files import TlsFiles
from troupe.runtime.tls.roles import ROLES, Role, host_of
from troupe.runtime.tls.settings import TlsSettings, configured

__all__ = ["ROLES", "Role", "TlsFiles", "TlsSettings", "configured", "host_of"]
