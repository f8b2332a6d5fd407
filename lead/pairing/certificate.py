"""The CA of a lead, which signs the certificate of its pairing port.

The CA can only be used for the lead's own names, its public addresses, and addresses of private networks. A
system that installs the CA trusts it for nothing else. Machines that join pin the CA's key, which stays the
same when the CA gets a new certificate.
"""

import datetime as dt
import ipaddress
import logging
import re
import socket
import ssl
from collections.abc import Iterable, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from shared.cached_files import write_private
from shared.errors import ConfigError

log = logging.getLogger("lead")

_KEY, _CERTIFICATE, _SERVER = "key.pem", "ca.crt", "server.pem"
"""Files in the folder: the CA's key, the CA's certificate, and the server's key with its certificate."""
_FROM, _UNTIL = dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2049, 12, 31, tzinfo=dt.UTC)
_DAY = dt.timedelta(days=1)
_SERVER_LIFE = 397 * _DAY
"""The life of a server's certificate. Apple's systems accept at most 825 days if a person installed the CA.
"""
_RENEWED_BEFORE = 60 * _DAY
_MAX_FORMER_NAMES = 16
_PRIVATE_NETWORKS = (
    *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "127.0.0.0/8"),
    "100.64.0.0/10",  # Tailscale
    *("fc00::/7", "fe80::/10", "::1/128"),
)
"""The CA may always sign for these networks, so a lead that gets another address by DHCP keeps its CA. No
public site is in them.
"""
_DNS_NAME = re.compile(r"(?=.{1,253}$)(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Authority:
    """The lead's CA, kept in a folder, and the TLS context of a server with a certificate of this CA."""

    def __init__(self, folder: Path, hosts: Sequence[str]) -> None:
        """hosts: names and addresses of the server. Raises ConfigError."""
        self._folder = folder
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.certificate = ""
        """The CA's certificate in PEM."""
        self.renew(hosts)

    def renew(self, hosts: Sequence[str]) -> None:
        """Replace certificates that are for other hosts or expire soon; `context` uses the new ones for new
        connections.

        hosts: names and addresses of the server. Raises ConfigError.
        """
        try:
            key = _read_key(self._folder / _KEY)
            authority = self._authority(key, list(hosts))
            self._serve(key, authority, list(hosts))
            self.certificate = _pem(authority).decode("ascii")
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot keep a certificate in {self._folder}: {error}") from error

    def _authority(self, key: ec.EllipticCurvePrivateKey, hosts: list[str]) -> x509.Certificate:
        path = self._folder / _CERTIFICATE
        if (kept := _read_certificate(path)) and _permits(kept, hosts) and _has_key(kept, key):
            return kept
        # Former names are kept: a laptop may have another name in each network, and returns to networks.
        made = _make_authority(key, [*hosts, *_permitted_names(kept)[:_MAX_FORMER_NAMES]])
        write_private(path, _pem(made))
        if kept:
            log.warning(
                "this machine has new names or public addresses, so the lead's CA has a new "
                "certificate. Install it again in browsers and programs. Backs and chat fetch it "
                "themselves"
            )
        return made

    def _serve(self, key: ec.EllipticCurvePrivateKey, authority: x509.Certificate, hosts: list[str]) -> None:
        """Load the server's certificate into the context; make a new certificate if necessary."""
        path = self._folder / _SERVER
        now = dt.datetime.now(dt.UTC)
        kept = _read_certificate(path)
        if kept is None or not _is_good(kept, authority, hosts, now):
            own = _new_key()
            write_private(path, _key_pem(own) + _pem(_sign(key, authority, own, hosts, now)))
        self.context.load_cert_chain(path)


def _make_authority(key: ec.EllipticCurvePrivateKey, hosts: list[str]) -> x509.Certificate:
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    words = f"llama-duo on {socket.gethostname()[:40]}, {identifier.digest.hex()[:8]}"
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, words)])
    permitted = [*map(x509.DNSName, _dns_names(hosts)), *map(x509.IPAddress, _networks(hosts))]
    excluded = list(map(x509.DNSName, _below_bare_names(hosts))) or None
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.NameConstraints(permitted, excluded), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )


def _sign(
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    own: ec.EllipticCurvePrivateKey,
    hosts: list[str],
    now: dt.datetime,
) -> x509.Certificate:
    common = x509.NameAttribute(x509.NameOID.COMMON_NAME, next(iter(_dns_names(hosts)), "lead")[:64])
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([common]))
        .issuer_name(authority.subject)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now - _DAY + _SERVER_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName(
                [*map(x509.DNSName, _dns_names(hosts)), *map(x509.IPAddress, _addresses(hosts))]
            ),
            critical=False,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _is_good(kept: x509.Certificate, authority: x509.Certificate, hosts: list[str], now: dt.datetime) -> bool:

    try:
        kept.verify_directly_issued_by(authority)
        names = kept.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    dns_names = set(names.get_values_for_type(x509.DNSName))
    addresses = set(names.get_values_for_type(x509.IPAddress))
    is_for_hosts = dns_names == set(_dns_names(hosts)) and addresses == set(_addresses(hosts))
    return is_for_hosts and kept.not_valid_before_utc <= now < kept.not_valid_after_utc - _RENEWED_BEFORE


def _permits(authority: x509.Certificate, hosts: list[str]) -> bool:
    """Return whether the CA `authority` may sign a certificate for these hosts."""
    try:
        limits = authority.extensions.get_extension_for_class(x509.NameConstraints).value
    except x509.ExtensionNotFound:
        return False
    allowed, excluded = limits.permitted_subtrees or (), limits.excluded_subtrees or ()
    networks = {each.value for each in allowed if isinstance(each, x509.IPAddress)}
    return (
        set(_permitted_names(authority)) >= set(_dns_names(hosts))
        and networks >= set(_networks(hosts))
        and {each.value for each in excluded} >= set(_below_bare_names(hosts))
    )


def _permitted_names(authority: x509.Certificate | None) -> list[str]:
    try:
        limits = authority and authority.extensions.get_extension_for_class(x509.NameConstraints).value
    except x509.ExtensionNotFound:
        return []
    allowed = (limits and limits.permitted_subtrees) or ()
    return [each.value for each in allowed if isinstance(each, x509.DNSName)]


def _dns_names(hosts: Iterable[str]) -> list[str]:
    names = dict.fromkeys(host.lower() for host in hosts if _address(host) is None)
    return [name for name in names if _DNS_NAME.fullmatch(name)]


def _below_bare_names(hosts: Iterable[str]) -> list[str]:
    """Return the names to exclude for host names without a dot: permitting `dev` would also permit all of
    .dev.
    """
    return [f".{name}" for name in _dns_names(hosts) if "." not in name]


def _addresses(hosts: Iterable[str]) -> list[_IpAddress]:
    return [address for host in dict.fromkeys(hosts) if (address := _address(host))]


def _networks(hosts: Iterable[str]) -> list[_Network]:
    """Return the private networks, and a network for each other address."""
    private = [ipaddress.ip_network(each) for each in _PRIVATE_NETWORKS]
    others = (each for each in _addresses(hosts) if not any(each in network for network in private))
    return [*private, *map(ipaddress.ip_network, others)]


def _address(host: str) -> _IpAddress | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Return the CA's key, which is made if there is none; raises OSError, ValueError."""
    if not path.exists():
        key = _new_key()
        write_private(path, _key_pem(key))
        return key
    kept = serialization.load_pem_private_key(path.read_bytes(), None)
    if not isinstance(kept, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{path.name} is not an EC key")  # noqa: TRY004 - of a file, not of an argument
    return kept


def _read_certificate(path: Path) -> x509.Certificate | None:
    """Return the certificate in a file; None if there is none that can be read."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        return None


def _has_key(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> bool:
    return certificate.public_key() == key.public_key()


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
