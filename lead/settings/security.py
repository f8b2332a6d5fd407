"""The settings of the door: who may enter."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import NoDecode

from lead.http.middleware.hosts import AllowedHosts, machine_names
from lead.http.middleware.keys import Key, Keyring, Role, named_keys, role_keys
from shared.settings.base import CommaList

KeyList = Annotated[list[SecretStr], NoDecode]
"""One key, several with commas between them, or the option several times."""


class DoorSettings(BaseModel):
    """Mixed into the lead's settings."""

    model_config = ConfigDict(frozen=True)
    key_fields: ClassVar[tuple[str, ...]] = (
        *("api_key", "api_key_file", "back_key", "back_key_file"),
        *("admin_key", "admin_key_file", "keys_file"),
    )

    api_key: KeyList = Field(
        [], description="keys for clients; LEAD_API_KEY or a file keeps them out of `ps`"
    )
    api_key_file: Path | None = Field(None, description="a file with keys for clients, one per line")
    back_key: KeyList = Field([], description="keys for backs: whoever has one sees the text of requests")
    back_key_file: Path | None = Field(None, description="a file with keys for backs, one per line")
    admin_key: KeyList = Field([], description="keys that allow everything")
    admin_key_file: Path | None = Field(None, description="a file with such keys, one per line")
    keys_file: Path | None = Field(
        None, description="a file with keys of all roles: lines of role (client, back, admin), name and key"
    )
    insecure: bool = Field(
        False, description="listen on an address that others can reach although there are no keys"
    )
    allowed_hosts: CommaList = Field(
        (),
        description="further names that the lead goes by (*.name: all below it; *: any); without keys, or if "
        "some are given, requests under others are refused: pages can point their name at this machine",
    )
    cors_origins: CommaList = Field(
        (),
        description="origins whose pages may use the lead, as in https://chat.example; localhost: all pages "
        "of this machine; *: any",
    )
    ssl_cert_file: Path | None = Field(None, description="serve HTTPS with this certificate chain (PEM)")
    ssl_key_file: Path | None = Field(
        None, validate_default=True, description="the certificate's key (PEM, without a password)"
    )
    private_by_default: bool = Field(
        False, description='show backs only the requests that say `"private": false`'
    )

    @field_validator("api_key", "back_key", "admin_key", mode="before")
    @classmethod
    def _split_keys(cls, value: Any) -> Any:
        given = value.split(",") if isinstance(value, str) else value
        if isinstance(given, list):
            return [each.strip() if isinstance(each, str) else each for each in given]
        return given

    @field_validator("ssl_key_file")
    @classmethod
    def _check_pair(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if (value is None) != (info.data.get("ssl_cert_file") is None):
            raise PydanticCustomError("missing", "HTTPS needs both --ssl-cert-file and --ssl-key-file")
        return value

    @property
    def has_keys(self) -> bool:
        """Whether somebody without a key is to be refused."""
        return any(getattr(self, name) for name in self.key_fields)

    def host_names(self, bound: str = "localhost") -> AllowedHosts | None:
        """The names that a lead which listens on `bound` goes by; None: any.

        With keys any name will do unless some are given: a page that has pointed its name here has no key.
        """
        if self.has_keys and not self.allowed_hosts:
            return None
        return AllowedHosts({*machine_names(bound), *self.allowed_hosts})

    def keyring(self, own: Iterable[Key] = ()) -> Keyring:
        """Read the keys; `own` are the lead's, and do not close a lead that is open. Raises ConfigError."""
        if not self.has_keys:
            return Keyring()
        return Keyring([*self.keys(), *own])

    def keys(self) -> Iterator[Key]:
        """All that are configured; raises ConfigError."""
        yield from role_keys(Role.CLIENT, _reveal(self.api_key), self.api_key_file)
        yield from role_keys(Role.BACK, _reveal(self.back_key), self.back_key_file)
        yield from role_keys(Role.ADMIN, _reveal(self.admin_key), self.admin_key_file)
        if self.keys_file:
            yield from named_keys(self.keys_file)


def _reveal(keys: list[SecretStr]) -> list[str]:
    return [key.get_secret_value() for key in keys]
