"""TLS on the side that dials: whom to trust."""

import ssl
from pathlib import Path

from shared.errors import ConfigError


def trusting(authorities: Path | None) -> ssl.SSLContext:
    """Trust the system's authorities, or those in a PEM file instead; raises ConfigError."""
    try:
        return ssl.create_default_context(cafile=authorities)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot read certificates from {authorities}: {_reason(error)}") from error


def pinning(certificate: Path) -> ssl.SSLContext:
    """Trust the one certificate in a PEM file, whatever name it stands for and whoever signed it.

    It is for a program that knows the server's own certificate and reaches it under another name.
    """
    context = trusting(certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def check_certificate(certificate: Path, key: Path) -> None:
    """Whether a server can present `certificate`; raises ConfigError if not."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"cannot serve TLS with the certificate {certificate} and the key {key}: {_reason(error)}"
        ) from error


def _no_password() -> str:
    """Instead of asking on the terminal."""
    raise ConfigError("the key of the certificate asks for a password: give one that does not")


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return error.strerror or str(error)
