"""Access to the lead: keys, host names, origins of web pages, HTTPS."""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from lead.settings.host_names import AllowedHosts, is_loopback, machine_names
from lead.settings.keys import HOW_TO_MAKE_ONE, Key, Keyring, Role, named_keys, role_keys
from shared.settings.options import AsWritten, CommaList, OptionError, OptionGroup
from shared.settings.server_url import Scheme

KeyList = Annotated[list[SecretStr], AsWritten]
"""Keys separated by commas, or given by repeating the option."""

log = logging.getLogger("lead")

_GUESSABLE_CHARACTERS = 16
EXPOSED = (
    "anyone who can reach this address could use the lead and read prompts. Set --api-key, "
    f"--back-key or --keys-file ({HOW_TO_MAKE_ONE}), or --insecure"
)
"""The reason why a lead refuses to listen on an address."""


class SecurityOptions(OptionGroup):
    """Options for access to the lead. Without keys every request is allowed."""

    api_key: KeyList = Field(
        [],
        description="comma-separated API keys for clients. The variable LEAD_API_KEY and --api-key-file hide "
        "keys from process listings",
    )
    api_key_file: Path | None = Field(None, description="file with API keys for clients, one per line")
    back_key: KeyList = Field(
        [], description="comma-separated keys for backs. Backs receive the text of requests"
    )
    back_key_file: Path | None = Field(None, description="file with keys for backs, one per line")
    admin_key: KeyList = Field([], description="comma-separated keys with all permissions")
    admin_key_file: Path | None = Field(None, description="file with keys with all permissions, one per line")
    keys_file: Path | None = Field(
        None, description="file with keys of all roles, one per line: ROLE (client, back or admin) NAME KEY"
    )
    insecure: bool = Field(
        False, description="let other machines use the lead without keys, at a --host that they can reach"
    )
    allowed_hosts: CommaList = Field(
        (),
        description="comma-separated additional names for the Host header. *.name means all subdomains, "
        "and * means any name. Requests with other names are rejected, which protects against "
        "DNS rebinding. Default with keys: any name",
    )
    cors_origins: CommaList = Field(
        (),
        description="comma-separated origins of web pages that may use the API, such as "
        "https://chat.example; localhost: all pages of this machine; *: any",
    )
    ssl_cert_file: Path | None = Field(
        None,
        description="path of a TLS certificate or chain (PEM). The lead then serves HTTPS instead of HTTP",
    )
    ssl_key_file: Path | None = Field(
        None, description="path of the certificate's private key (PEM, not encrypted)"
    )
    private_by_default: bool = Field(
        False, description='treat requests as private (not sent to backs) unless they set `"private": false`'
    )

    @field_validator("api_key", "back_key", "admin_key", mode="before")
    @classmethod
    def _split_keys(cls, value: Any) -> Any:
        given = value.split(",") if isinstance(value, str) else value
        if isinstance(given, list):
            return [each.strip() if isinstance(each, str) else each for each in given]
        return given

    @model_validator(mode="after")
    def _check_certificate_has_key(self) -> Self:
        if (self.ssl_key_file is None) != (self.ssl_cert_file is None):
            raise OptionError("ssl_key_file", "HTTPS needs both --ssl-cert-file and --ssl-key-file")
        return self

    @property
    def has_keys(self) -> bool:
        """True if requests without a key are refused."""
        files = (self.api_key_file, self.back_key_file, self.admin_key_file, self.keys_file)
        return any((self.api_key, self.back_key, self.admin_key, *files))

    def may_listen_on(self, host: str) -> bool:
        """Return whether the lead may listen on `host`: if only this machine reaches it, if keys are
        required, or with --insecure.
        """
        return is_loopback(host) or self.insecure or self.has_keys

    @property
    def https(self) -> bool:
        """True if the lead serves HTTPS instead of HTTP."""
        return self.ssl_cert_file is not None

    @property
    def scheme(self) -> Scheme:
        return "https" if self.https else "http"

    def host_names(self, bound: str = "localhost") -> AllowedHosts | None:
        """Return the host names that requests to a lead on the address `bound` may use; None: any.

        With keys, names are checked only with --allowed-hosts: a page that uses DNS rebinding has no key.
        """
        if self.has_keys and not self.allowed_hosts:
            return None
        return AllowedHosts({*machine_names(bound), *self.allowed_hosts})

    def keyring(self, own: Iterable[Key] = ()) -> Keyring:
        """Read the keys. `own` keys are added only if other keys are set, so that an open lead stays open.

        Logs a warning for keys that are short enough to be guessed. Raises ConfigError.
        """
        if not self.has_keys:
            return Keyring()
        keys = list(self.keys())
        if short := [str(each.principal) for each in keys if len(each.secret) < _GUESSABLE_CHARACTERS]:
            log.warning(
                "short keys can be guessed (%s: less than %d characters). %s",
                ", ".join(short),
                _GUESSABLE_CHARACTERS,
                HOW_TO_MAKE_ONE,
            )
        return Keyring([*keys, *own])

    def keys(self) -> Iterator[Key]:
        """Yield all configured keys; raises ConfigError."""
        yield from role_keys(Role.CLIENT, _reveal(self.api_key), self.api_key_file)
        yield from role_keys(Role.BACK, _reveal(self.back_key), self.back_key_file)
        yield from role_keys(Role.ADMIN, _reveal(self.admin_key), self.admin_key_file)
        if self.keys_file:
            yield from named_keys(self.keys_file)


def _reveal(keys: list[SecretStr]) -> list[str]:
    return [key.get_secret_value() for key in keys]
