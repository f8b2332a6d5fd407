"""Certificates generated for a test. The system does not trust their authority, which trustme makes."""

import contextlib
import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Certificate:
    """Paths of PEM files: a server's certificate chain, its key, and the certificate of the authority."""

    chain: Path
    key: Path
    authority: Path

    @property
    def options(self) -> dict[str, Path]:
        """The lead's settings for these files."""
        return {"ssl_cert_file": self.chain, "ssl_key_file": self.key}


def make_certificate(folder: Path, *names: str, authority: trustme.CA | None = None) -> Certificate:
    """Write a certificate for `names` or addresses, signed by `authority` or by a new authority."""
    authority = authority or trustme.CA()
    issued = authority.issue_cert(*names)
    made = Certificate(folder / "cert.pem", folder / "key.pem", folder / "ca.pem")
    made.chain.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(made.key))
    authority.cert_pem.write_to_path(str(made.authority))
    return made


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """Let a client greet a server under `name`, in memory; raises SSLError."""
    ours, theirs = (ssl.MemoryBIO(), ssl.MemoryBIO()), (ssl.MemoryBIO(), ssl.MemoryBIO())
    client_side = client.wrap_bio(ours[0], ours[1], server_hostname=name)
    server_side = server.wrap_bio(theirs[0], theirs[1], server_side=True)
    for _ in range(4):
        for side, outgoing, incoming in (
            (client_side, ours[1], theirs[0]),
            (server_side, theirs[1], ours[0]),
        ):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
            incoming.write(outgoing.read())
