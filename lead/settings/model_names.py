"""What clients call the model."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelNames:
    """Names and tags of the one model; any name in a request is served, so they only inform."""

    aliases: tuple[str, ...]
    """At least one."""
    tags: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The one in answers: the first in the alphabet, as in llama-server."""
        return self.aliases[0]

    @classmethod
    def read(cls, aliases: str | None, tags: str | None, own: str) -> "ModelNames":
        """Of texts with commas; `own` is what the model calls itself, where there are no aliases."""
        return cls(_split(aliases) or (own,), _split(tags))


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(sorted({part.strip() for part in (text or "").split(",")} - {""}))
