"""Makes an authority and a certificate for each role, for compose, one machine and tests.

    python -m troupe.runtime.tls.certificates --into secrets/tls

Run it again to renew: the authority is kept, and services take the new files without a restart.
To keep the authority elsewhere, name it with ``--authority DIR``: where certificates were issued,
a missing or another authority is refused, since no running process would trust what it signs.
Needs the ``cryptography`` package. The chart makes its own (values: tls.source), and a company's
authority does as well: what counts are the DNS names (troupe/runtime/tls/roles.py).
"""

import argparse
import datetime
import ipaddress
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from troupe.durable import replace_file
from troupe.errors import InvalidArgumentError, TroupeError
from troupe.runtime.tls.roles import ROLES, Role, host_of

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 825


@dataclass(frozen=True)
class Authority:
    """A certificate authority. Example: ``Authority.create("test").issue(["env"], folder)``."""

    certificate: "x509.Certificate"
    key: "EllipticCurvePrivateKey"

    @classmethod
    def create(cls, name: str = "troupe", *, days: int = AUTHORITY_DAYS) -> "Authority":
        """A new authority."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(f"{name} authority", days)
            .issuer_name(_name(f"{name} authority"))
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(is_authority=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .sign(key, _sha256())
        )
        return cls(certificate, key)

    @classmethod
    def load(cls, folder: Path) -> "Authority":
        """The authority that ``save`` wrote."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization

        certificate = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
        key: Any = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        return cls(certificate, key)

    def save(self, folder: Path) -> None:
        """Write ``ca.crt`` and ``ca.key``; only the issuer needs the key."""
        _write(folder / "ca.crt", self.pem(), 0o644)
        _write(folder / "ca.key", _key_pem(self.key), 0o600)

    def pem(self) -> bytes:
        """The authority's certificate."""
        from cryptography.hazmat.primitives.serialization import Encoding

        return self.certificate.public_bytes(Encoding.PEM)

    def issue(
        self,
        roles: Iterable[Role],
        folder: Path,
        *,
        hosts: Sequence[str] = (),
        days: int = CERTIFICATE_DAYS,
        key_mode: int = 0o600,
    ) -> None:
        """Write ``ca.crt``, ``tls.crt`` and ``tls.key`` for a process of these roles.

        ``hosts`` are further names or addresses: those at which Redis is reached.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding

        names = [*(host_of(role) for role in roles), *hosts]
        if not names:
            raise InvalidArgumentError("A certificate needs a role or a host.")
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(names[0], days)
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .add_extension(
                x509.SubjectAlternativeName([_general(name) for name in names]), critical=False
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(is_authority=False), critical=True)
            .add_extension(_both_ends(), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False
            )
            .sign(self.key, _sha256())
        )
        # The key first: until the certificate follows, the pair does not fit and is not taken.
        _write(folder / "tls.key", _key_pem(key), key_mode)
        _write(folder / "ca.crt", self.pem(), 0o644)
        _write(folder / "tls.crt", certificate.public_bytes(Encoding.PEM), 0o644)


def main(argv: Sequence[str] | None = None) -> int:
    """Make or renew certificates; 1 when that fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--into", type=Path, required=True, help="folder of the folders")
    parser.add_argument(
        "--redis-host",
        action="append",
        default=[],
        help="name or address of Redis (default: redis, localhost, 127.0.0.1)",
    )
    parser.add_argument(
        "--shared-keys",
        action="store_true",
        help="keys that containers of another user can read; the folder itself is closed",
    )
    parser.add_argument(
        "--authority",
        type=Path,
        help="folder of what signs, made the first time (default: authority, beside the others)",
    )
    parser.add_argument(
        "--new-authority",
        action="store_true",
        help="make another authority; what was issued before is trusted no longer",
    )
    parser.add_argument("--days", type=int, default=CERTIFICATE_DAYS, help="how long they hold")
    options = parser.parse_args(argv)
    try:
        hosts = options.redis_host or ["redis", "localhost", "127.0.0.1"]
        mode = 0o644 if options.shared_keys else 0o600
        make(
            options.into,
            redis_hosts=hosts,
            days=options.days,
            key_mode=mode,
            home=options.authority,
            is_new=options.new_authority,
        )
    except ImportError as error:
        print(f"{error}: pip install cryptography.", file=sys.stderr)
        return 1
    except (TroupeError, OSError, ValueError) as error:
        print(f"{options.into}: no certificates were made: {error}", file=sys.stderr)
        return 1
    print(f"{options.into}: certificates for {', '.join(ROLES)} and all of them (machine)")
    return 0


def make(
    into: Path,
    *,
    redis_hosts: Sequence[str],
    days: int = CERTIFICATE_DAYS,
    key_mode: int = 0o600,
    home: Path | None = None,
    is_new: bool = False,
) -> Authority:
    """Write a folder for each role, and ``machine`` for a machine that runs all of them.

    ``home`` is the authority's folder, ``authority`` among the others by default; ``is_new``
    makes another authority there.

    Raises:
        InvalidArgumentError: certificates were issued, and not by the authority in ``home``.
    """
    into.mkdir(parents=True, exist_ok=True)
    into.chmod(0o700)
    home = home or into / "authority"
    trusted = [home / "ca.crt", *(into / name / "ca.crt" for name in (*ROLES, "machine"))]
    issued = [path for path in trusted if path.exists()]
    if is_new or not (issued or (home / "ca.key").exists()):
        authority = Authority.create()
        authority.save(home)
    else:
        authority = _trusted_authority(home, issued)
    for role in ROLES:
        hosts = redis_hosts if role == "redis" else ()
        authority.issue([role], into / role, hosts=hosts, days=days, key_mode=key_mode)
    authority.issue(ROLES, into / "machine", hosts=redis_hosts, days=days)
    return authority


def _trusted_authority(home: Path, issued: Sequence[Path]) -> Authority:
    """The one in ``home``, which each ``ca.crt`` of ``issued`` must hold."""
    from cryptography import x509

    if not (home / "ca.key").exists():
        raise InvalidArgumentError(
            f"There is no {home / 'ca.key'}, but {issued[0]} names an authority. Bring its folder "
            "back or name it with --authority DIR; --new-authority makes another one, and what was "
            "issued before is trusted no longer."
        )
    authority = Authority.load(home)
    for path in issued:
        if authority.certificate not in x509.load_pem_x509_certificates(path.read_bytes()):
            raise InvalidArgumentError(
                f"{path} does not hold the authority of {home}: what it signs would not be "
                "trusted. Name the right one with --authority DIR, or first put both authorities "
                "into every ca.crt (docs/operations/tls.md, Rotation)."
            )
    return authority


def _builder(name: str, days: int) -> "x509.CertificateBuilder":
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .serial_number(x509.random_serial_number())
        # Clocks of nodes differ.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _name(text: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general(host: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, is_authority: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _both_ends() -> "x509.ExtendedKeyUsage":
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    return x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])


def _sha256() -> Any:
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA256()


def _key_pem(key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    """Appear whole, with its mode from the start."""
    replace_file(path, content, mode=mode)


if __name__ == "__main__":
    sys.exit(main())
