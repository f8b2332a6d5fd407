"""One question asked twice, with and without speculation: was it faster, and is the text the same? Pure."""

from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from chat.answer import Answer

WITHOUT_SPECULATION = {"speculative.n_max": 0}
"""A request field of llama-server, which a lead also supports."""

_N_SHOWN = 30


@dataclass(frozen=True, slots=True)
class Comparison:
    with_drafts: Answer
    without: Answer

    @property
    def ratio(self) -> float | None:
        """The speed-up as a factor; None if a speed is unknown."""
        fast = self.with_drafts.stats.tokens_per_second
        slow = self.without.stats.tokens_per_second
        return fast / slow if fast and slow else None

    @property
    def verdict(self) -> str:
        return f"{self._speed} {self._texts}"

    @property
    def _speed(self) -> str:
        if self.without.stats.n_drafted:
            return "The server used drafts both times: it cannot switch them off for one request."
        if not self.with_drafts.stats.n_drafted:
            return "There were no drafts either time: no back is connected, or drafts were not worthwhile."
        if self.ratio is None:
            return "The answers are too short to measure their speed."
        return f"{self.ratio:.2f} times as fast with speculation."

    @property
    def _texts(self) -> str:
        one, other = self.with_drafts.text, self.without.text
        if one == other:
            return "The texts are identical."
        n_same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
        return (
            f"The texts DIFFER from character {n_same + 1} on: {one[n_same:][:_N_SHOWN]!r} with speculation, "
            f"{other[n_same:][:_N_SHOWN]!r} without. "
            "(Does the server use the seed? If it does, see `exact` in its /props.)"
        )


def requests(request: dict[str, Any], random_seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two bodies; both have the same seed, drawn where none is set."""
    seeded = {"seed": random_seed, **request}
    return seeded, {**seeded, **WITHOUT_SPECULATION}
