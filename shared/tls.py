"""TLS on the side that dials: whom to trust."""

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

HANGS_UP: Final = "it hangs up: if it has a certificate, its address begins with https://"
"""Of a server that was asked in plain HTTP and went away without a word."""
SPEAKS_PLAIN: Final = "it does not speak HTTPS: does its address begin with http://?"


def trusting(authorities: Path | None) -> ssl.SSLContext:
    """Trust the system's authorities, or those in a PEM file instead; raises ConfigError."""
    try:
        return ssl.create_default_context(cafile=authorities)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot read certificates from {authorities}: {_reason(error)}") from error


def pinning(certificate: Path) -> ssl.SSLContext:
    """Trust the first certificate in a PEM file alone, whatever name it stands for and whoever signed it.

    It is for a program that knows the server's own certificate and reaches it under another name. Those who
    signed it stand behind it in the file: they have signed others, too. Raises ConfigError.
    """
    try:
        own = _FIRST_CERTIFICATE.search(certificate.read_text("utf-8"))
        if own is None:
            raise ConfigError(f"there is no certificate (PEM) in {certificate}")
        context = ssl.create_default_context(cadata=own[0])
    except (OSError, UnicodeError, ssl.SSLError) as error:
        raise ConfigError(f"cannot read certificates from {certificate}: {_reason(error)}") from error
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def explain_distrust(error: ssl.SSLCertVerificationError) -> str:
    """Why a server's certificate was not taken, and what a person can do."""
    reason = error.verify_message.rstrip(".")
    if error.verify_code in _NAME_MISMATCHES:
        return f"{reason}: with --lead give a name that its certificate has"
    if error.verify_code in _OUT_OF_DATE:
        return f"{reason}: the lead needs a new one, or this machine the right time"
    return f"{reason}: name who vouches for it with --ca-file"


def distrust_behind(error: BaseException) -> ssl.SSLCertVerificationError | None:
    """What a library made `error` of, if it was that."""
    cause: BaseException | None = error
    while cause:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


def is_plain(error: Exception) -> bool:
    """Whether `error` is what comes of greeting a server of plain HTTP with TLS."""
    return "WRONG_VERSION_NUMBER" in str(error)


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


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)
