"""The names of the model in the API."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelNames:
    """Names and tags of the model. They are informational: requests may use any name."""

    aliases: tuple[str, ...]
    """At least one."""
    tags: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The name in answers: the first in alphabetical order, as in llama-server."""
        return self.aliases[0]

    @classmethod
    def read(cls, aliases: str | None, tags: str | None, own: str) -> "ModelNames":
        """From comma-separated lists; `own`, the name in the model's metadata, is used without aliases."""
        return cls(_split(aliases) or (own,), _split(tags))


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(sorted({part.strip() for part in (text or "").split(",")} - {""}))
