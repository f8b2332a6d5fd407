"""A code that lets one machine join a lead: where it is, how to know it, and a secret that works once."""

import base64
import binascii
import hashlib
import ssl
import zlib
from dataclasses import dataclass
from typing import Final

from shared.errors import ConfigError

_PREFIX: Final = "duo1"
SECRET_BYTES: Final = 12
_FINGERPRINT_BYTES: Final = 16
"""Of a SHA-256: whoever wants to be taken for a lead needs a certificate with the same 128 bits."""
_CHECKSUM_BYTES: Final = 2
_FIXED_BYTES: Final = SECRET_BYTES + _FINGERPRINT_BYTES + _CHECKSUM_BYTES


@dataclass(frozen=True, slots=True)
class Invitation:
    """`addresses`: host:port, the likeliest first; none: it is found on the local network.

    `fingerprint`: of the lead's certificate.
    """

    secret: bytes
    fingerprint: bytes
    addresses: tuple[str, ...]

    def code(self) -> str:
        """As a person copies it: letters, digits, `-` and `_`."""
        content = self.secret + self.fingerprint + ",".join(self.addresses).encode("ascii")
        return _PREFIX + base64.urlsafe_b64encode(_checksum(content) + content).decode("ascii").rstrip("=")

    @classmethod
    def parse(cls, code: str) -> "Invitation":
        """Raises ConfigError."""
        content = _content("".join(code.split()))
        if content is None:
            raise ConfigError(
                "this is not a whole code of `lead invite`: it begins with duo1, and is copied to its end"
            )
        secret, rest = content[:SECRET_BYTES], content[SECRET_BYTES:]
        addresses = rest[_FINGERPRINT_BYTES:].decode("ascii", "replace").split(",")
        return cls(secret, rest[:_FINGERPRINT_BYTES], tuple(filter(None, addresses)))


def _content(code: str) -> bytes | None:
    """What a code says; None if it was not copied as it was."""
    digits = code.removeprefix(_PREFIX)
    try:
        data = base64.b64decode(digits + "=" * (-len(digits) % 4), b"-_", validate=True)
    except (ValueError, binascii.Error):
        return None
    content = data[_CHECKSUM_BYTES:]
    is_whole = len(data) >= _FIXED_BYTES and data[:_CHECKSUM_BYTES] == _checksum(content)
    return content if is_whole and code.startswith(_PREFIX) else None


def fingerprint(certificate: str) -> bytes:
    """Of the first certificate in PEM text."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).digest()[:_FINGERPRINT_BYTES]


def _checksum(content: bytes) -> bytes:
    """Tells a code that was copied wrongly from one that the lead does not know (any more)."""
    return (zlib.crc32(content) & 0xFFFF).to_bytes(_CHECKSUM_BYTES)
