"""TLS of clients: which server certificates to trust."""

import re
import ssl
from pathlib import Path
from typing import Final

from shared.errors import ConfigError

_FIRST_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_OUT_OF_DATE: Final = {9, 10}
"""X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL's x509_vfy.h."""
_NAME_MISMATCHES: Final = {62, 64}
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""

HANGS_UP: Final = "it closed the connection: if it serves HTTPS, its address begins with https://"
"""The message for a server that closes a plain HTTP connection without an answer."""
SPEAKS_PLAIN: Final = "it does not speak HTTPS: does its address begin with http://?"


def trusting(authorities: Path | None) -> ssl.SSLContext:
    """Trust the CA certificates in a PEM file; None: the system's. Raises ConfigError."""
    try:
        return ssl.create_default_context(cafile=authorities)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot read certificates from {authorities}: {_reason(error)}") from error


def pinning(certificate: Path) -> ssl.SSLContext:
    """Trust only the first certificate in a PEM file, whatever its name and issuer.

    For a program that knows the server's own certificate and connects under another name. The certificates
    after it, of its issuers, are not trusted, because they have signed others, too. Raises ConfigError.
    """
    try:
        own = _FIRST_CERTIFICATE.search(certificate.read_text("utf-8"))
        if own is None:
            raise ConfigError(f"no certificate (PEM) in {certificate}")
        return trusting_only(own[0])
    except (OSError, UnicodeError, ssl.SSLError) as error:
        raise ConfigError(f"cannot read certificates from {certificate}: {_reason(error)}") from error


def trusting_only(certificate: str) -> ssl.SSLContext:
    """Trust this certificate (PEM), whatever its name and issuer; raises ssl.SSLError."""
    context = ssl.create_default_context(cadata=certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def explain_distrust(error: ssl.SSLCertVerificationError) -> str:
    """Why a server's certificate was rejected, and what a person can do."""
    reason = error.verify_message.rstrip(".")
    if error.verify_code in _NAME_MISMATCHES:
        return f"{reason}: set --lead to a name that the certificate contains"
    if error.verify_code in _OUT_OF_DATE:
        return f"{reason}: renew the certificate, or correct the clock of this machine"
    return f"{reason}: set --ca-file to its certificate or that of its CA, or join it again with --join"


def distrust_behind(error: BaseException) -> ssl.SSLCertVerificationError | None:
    """The failed verification of a certificate that caused `error`, if one did."""
    cause: BaseException | None = error
    while cause:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


def is_plain(error: Exception) -> bool:
    """Whether `error` means that TLS was used with a server of plain HTTP."""
    return "WRONG_VERSION_NUMBER" in str(error)


def check_certificate(certificate: Path, key: Path) -> None:
    """Raises ConfigError if a server cannot use `certificate`."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"cannot serve TLS with the certificate {certificate} and the key {key}: {_reason(error)}"
        ) from error


def _no_password() -> str:
    """Called by ssl, which would otherwise ask on the terminal."""
    raise ConfigError("the private key of the certificate is encrypted: use one without a password")


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)
