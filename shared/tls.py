"""TLS of clients: which server certificates are trusted."""

import re
import ssl
from pathlib import Path
from typing import Final

from shared.errors import ConfigError

_NO_CHECK_TIME: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL's x509_vfy.h: the clock of a small machine may be wrong."""
_FIRST_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def trusting(authorities: Path | None) -> ssl.SSLContext:
    """Return a TLS context that trusts the CA certificates in a PEM file; None: the system's.

    Raises ConfigError.
    """
    try:
        return ssl.create_default_context(cafile=authorities)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot read certificates from {authorities}: {_reason(error)}") from error


def trusting_nothing() -> ssl.SSLContext:
    """Return a TLS context for clients of plain HTTP, which trusts no certificate: reading the system's
    certificates takes 20 ms.
    """
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def pinning(certificate: Path) -> ssl.SSLContext:
    """Return a TLS context that trusts only the first certificate in a PEM file, under any host name and at
    any time.

    This is for a program that knows the certificate of the server, or of its CA, and connects under another
    name. Further certificates in the file, of its issuers, are not trusted, because issuers have signed other
    certificates, too. Raises ConfigError.
    """
    try:
        own = _FIRST_CERTIFICATE.search(certificate.read_text("utf-8"))
        if own is None:
            raise ConfigError(f"{certificate} contains no certificate (PEM)")
        return trusting_only(own[0])
    except (OSError, UnicodeError, ssl.SSLError) as error:
        raise ConfigError(f"cannot read certificates from {certificate}: {_reason(error)}") from error


def trusting_only(certificate: str) -> ssl.SSLContext:
    """Return a TLS context that trusts only this certificate (PEM) and certificates that it has signed, under
    any host name and at any time. Raises ssl.SSLError.
    """
    context = ssl.create_default_context(cadata=certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    return context


def check_certificate(certificate: Path, key: Path) -> None:
    """Raise ConfigError if a server cannot use `certificate`."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"cannot serve TLS with the certificate {certificate} and the key {key}: {_reason(error)}"
        ) from error


def _no_password() -> str:
    """Raise ConfigError. Called by ssl, which would otherwise ask for a password on the terminal."""
    raise ConfigError("the private key of the certificate is encrypted. Use a key without a password")


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)
