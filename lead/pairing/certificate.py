"""The self-signed certificate of a lead, which invited machines recognize by its hash."""

import datetime as dt
import socket
import ssl
from pathlib import Path

from shared.cached_files import write_private
from shared.errors import ConfigError

_CERTIFICATE, _KEY = "certificate.pem", "key.pem"
_FROM = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
_UNTIL = dt.datetime(2120, 1, 1, tzinfo=dt.UTC)
"""Whoever trusts it has this very certificate: it should not end, nor fail where a clock is wrong."""


def server_context(folder: Path) -> tuple[ssl.SSLContext, str]:
    """Return a TLS context with the certificate in `folder`, made if there is none, and its PEM; raises
    ConfigError.
    """
    certificate, key = folder / _CERTIFICATE, folder / _KEY
    try:
        if not (certificate.exists() and key.exists()):
            _make(certificate, key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context, certificate.read_text("ascii")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot keep a certificate in {folder}: {error}") from error


def _make(certificate: Path, key: Path) -> None:
    from cryptography import x509  # noqa: PLC0415 - only the first invitation needs it
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(x509.NameOID.COMMON_NAME, f"llama-duo on {socket.gethostname()}"[:64])]
    )
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    write_private(
        key,
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )
    write_private(certificate, signed.public_bytes(serialization.Encoding.PEM))
