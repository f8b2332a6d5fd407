"""A code that lets one machine join a lead: role, addresses, fingerprint of the lead's CA, and a one-time
secret.
"""

import base64
import binascii
import hashlib
import zlib
from dataclasses import dataclass
from typing import Final, Literal

from shared.errors import ConfigError

MemberRole = Literal["back", "client"]
"""The permissions of a machine that joins. The lead decides them when it makes a code."""
_PREFIXES: Final[dict[MemberRole, str]] = {"back": "duo3b", "client": "duo3c"}
_ROLES: Final = {prefix: role for role, prefix in _PREFIXES.items()}
_PREFIX_LENGTH: Final = 5
SECRET_BYTES: Final = 12
_FINGERPRINT_BYTES: Final = 16
"""The number of bytes of a SHA-256 in a code: a machine that poses as the lead would need a key with the same
128 bits.
"""
_CHECKSUM_BYTES: Final = 2
_FIXED_BYTES: Final = SECRET_BYTES + _FINGERPRINT_BYTES + _CHECKSUM_BYTES


@dataclass(frozen=True, slots=True)
class Invitation:
    """An invitation to join a lead.

    `fingerprint`: the fingerprint of the lead's CA. `role`: for information only; the lead remembers for
    which role it has made the secret.
    """

    role: MemberRole
    secret: bytes
    fingerprint: bytes
    addresses: tuple[str, ...]

    def code(self) -> str:
        """Return the code to copy: letters, digits, `-` and `_`."""
        content = self.secret + self.fingerprint + ",".join(self.addresses).encode("ascii")
        prefix = _PREFIXES[self.role]
        data = _checksum(prefix, content) + content
        return prefix + base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")

    @classmethod
    def parse(cls, code: str) -> "Invitation":
        """Parse a code; raises ConfigError."""
        code = "".join(code.split())
        prefix, digits = code[:_PREFIX_LENGTH], code[_PREFIX_LENGTH:]
        role = _ROLES.get(prefix)
        content = role and _content(prefix, digits)
        if not role or not content:
            raise ConfigError(
                "this invitation code is incomplete or has a typo. Copy all of it, starting with duo3"
            )
        secret, rest = content[:SECRET_BYTES], content[SECRET_BYTES:]
        addresses = rest[_FINGERPRINT_BYTES:].decode("ascii", "replace").split(",")
        return cls(role, secret, rest[:_FINGERPRINT_BYTES], tuple(filter(None, addresses)))


def _content(prefix: str, digits: str) -> bytes | None:
    """Return the bytes in a code's digits; None if it was not copied correctly."""
    try:
        data = base64.b64decode(digits + "=" * (-len(digits) % 4), b"-_", validate=True)
    except (ValueError, binascii.Error):
        return None
    content = data[_CHECKSUM_BYTES:]
    is_whole = len(data) >= _FIXED_BYTES and data[:_CHECKSUM_BYTES] == _checksum(prefix, content)
    return content if is_whole else None


def only_certificate(text: str) -> str:
    """Return the first certificate in a PEM text, encoded anew; raises ValueError.

    A TLS context would also trust further certificates in the text, which `fingerprint` does not see.
    """
    from cryptography import x509  # noqa: PLC0415 - only who joins or invites needs it
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    first = x509.load_pem_x509_certificate(text.encode())
    return first.public_bytes(serialization.Encoding.PEM).decode("ascii")


def fingerprint(certificate: str) -> bytes:
    """Return the fingerprint of the public key in a certificate (PEM); raises ValueError."""
    from cryptography import x509  # noqa: PLC0415 - only who joins or invites needs it
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    try:
        key = x509.load_pem_x509_certificate(certificate.encode()).public_key()
    except UnsupportedAlgorithm as error:
        raise ValueError(f"the certificate has an unknown kind of key: {error}") from error
    encoded = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(encoded).digest()[:_FINGERPRINT_BYTES]


def _checksum(prefix: str, content: bytes) -> bytes:
    """Return a checksum, which distinguishes a mistyped code from a code that the lead does not know."""
    return (zlib.crc32(prefix.encode() + content) & 0xFFFF).to_bytes(_CHECKSUM_BYTES)
