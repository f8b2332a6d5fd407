"""The size of a llama-architecture model, and which sizes another one can grow to."""

from dataclasses import dataclass

from shared.errors import ConfigError


@dataclass(frozen=True)
class Shape:
    """The four numbers that growing changes; head width, context and vocabulary stay the source's."""

    width: int
    """The width of the residual stream: llama.cpp's n_embd."""
    n_layers: int
    n_heads: int
    """Query heads. Key/value heads follow, so that as many query heads share one as in the source."""
    n_feed_forward: int
    """Hidden units of each layer's feed-forward part."""

    def __str__(self) -> str:
        return f"{self.width}x{self.n_layers}, {self.n_heads} heads, feed-forward {self.n_feed_forward}"


def require_larger(new: Shape, old: Shape) -> None:
    """Raise ConfigError, naming the field, if `new` is smaller than `old` anywhere."""
    for field in ("width", "n_layers", "n_heads", "n_feed_forward"):
        wanted, least = getattr(new, field), getattr(old, field)
        if wanted < least:
            raise ConfigError(f"{field} {wanted} is smaller than the source's {least}: a model can only grow")


def require_whole_groups(n_heads: int, group: int) -> None:
    """Raise ConfigError unless `n_heads` query heads fill whole groups: each shares one key/value head."""
    if n_heads % group:
        raise ConfigError(f"n_heads {n_heads} is not a multiple of {group}, the heads per key/value head")


def require_whole_blocks(rows: dict[str, int], block: int) -> None:
    """Raise ConfigError unless each of the named row lengths fills whole blocks of a quantization."""
    for field, length in rows.items():
        if length % block:
            raise ConfigError(f"{field} makes rows of {length} values, but the type packs {block} at a time")
