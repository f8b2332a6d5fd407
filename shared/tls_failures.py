"""Explains failures of TLS between a client and a server, with remedies."""

import ssl
from typing import Final

_OUT_OF_DATE: Final = {9, 10}
"""X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL's x509_vfy.h."""
_NAME_MISMATCHES: Final = {62, 64}
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""

HANGS_UP: Final = "it closed the connection. If it serves HTTPS, write https:// in its address"
"""The message for a server that closes a plain HTTP connection without an answer."""
SPEAKS_PLAIN: Final = "it does not use HTTPS. Write http:// in its address"


def explain_distrust(error: ssl.SSLCertVerificationError) -> str:
    """Explain why a server's certificate was rejected, with a remedy."""
    reason = error.verify_message.rstrip(".")
    if error.verify_code in _NAME_MISMATCHES:
        return f"{reason}. Set --lead to a name in the certificate"
    if error.verify_code in _OUT_OF_DATE:
        return f"{reason}. Renew the certificate, or correct the clock of this machine"
    return f"{reason}. Set --ca-file to its certificate or its CA's certificate, or join it again with --join"


def distrust_behind(error: BaseException) -> ssl.SSLCertVerificationError | None:
    """Return the failed verification of a certificate that caused `error`; None if there was none."""
    cause: BaseException | None = error
    while cause:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


def is_plain(error: Exception) -> bool:
    """Return whether `error` means that TLS was used with a server of plain HTTP."""
    return "WRONG_VERSION_NUMBER" in str(error)
