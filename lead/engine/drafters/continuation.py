"""Drafts from matches: what follows an earlier occurrence of a text's last tokens, with confidences."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

LONGEST_MATCH = 32
"""Longer matches are cut: acceptance hardly rises with more (docs/performance.md)."""
SHORTEST_MATCH = 2
"""One equal token is not enough: on stories 15 % of what follows is right, after two 38 %."""

# x / (x + 3) with x = length * weight spreads what was measured (docs/performance.md) over all of (0, 1). It
# was, after 2, 5 and 12 tokens: alone .54, .75, .95; unanimous .77, .88, .96; disputed .22, .32, .75.
_HALF = 3.0
_UNANIMOUS = 2.5
_DISPUTED_POWER = 1.5


class Match(NamedTuple):
    """The `length` tokens before `at` equal the end of the text to continue; what follows begins at `at`."""

    length: int
    at: int


Continuation = tuple[list[int], list[float]]
"""Tokens, and for each the confidence that it is right if those before it are, 0 < confidence < 1."""


def match_length(text: Sequence[int], at: int, other: Sequence[int], other_at: int) -> int:
    """How many tokens before text[at] equal those before other[other_at], at most LONGEST_MATCH."""
    longest = min(at, other_at, LONGEST_MATCH)
    before, other_before = text[at - longest : at], other[other_at - longest : other_at]
    if before == other_before:
        return longest
    n = 0
    for token, other_token in zip(reversed(before), reversed(other_before), strict=False):
        if token != other_token:
            break
        n += 1
    return n


def longest_first(text: Sequence[int], places: Iterable[int], other: Sequence[int]) -> list[Match]:
    """What precedes `places` in `text` and equals the end of `other`; of equal length the later first."""
    found = [Match(match_length(text, at, other, len(other)), at) for at in places if at <= len(text)]
    return sorted((match for match in found if match.length >= SHORTEST_MATCH), reverse=True)


class CopiedPassage:
    """The passage that drafts are taken from: it goes on even where an index has forgotten the place."""

    def __init__(self) -> None:
        self._at = self._n_tokens = 0

    def among(self, places: Sequence[int], n_tokens: int) -> list[int]:
        """`places`, and the one where the copy goes on, in a text that now has `n_tokens` tokens."""
        here = self._at + n_tokens - self._n_tokens
        return [*places, here] if self._at and here not in places else [*places]

    def follow(self, matches: Sequence[Match], n_tokens: int) -> None:
        """The next draft is taken from the first of `matches`."""
        self._at, self._n_tokens = (matches[0].at if matches else 0), n_tokens


def confidence(length: int, n_agreeing: int, n_matches: int) -> float:
    """Rises with the match's length and with the share of the matches that propose the same token."""
    if n_matches == 1:
        weight = 1.0
    elif n_agreeing == n_matches:
        weight = _UNANIMOUS
    else:
        weight = (n_agreeing / n_matches) ** _DISPUTED_POWER
    x = length * weight
    return float(x / (x + _HALF))


def follow(text: Sequence[int], matches: Sequence[Match], max_tokens: int, *, wraps: bool) -> Continuation:
    """What follows the first of `matches` in `text`, at most `max_tokens` tokens.

    The other matches only change the confidences.

    As long as the draft is right, the match grows with it. `wraps`: the text to continue is `text` itself, so
    the draft continues after its end: repetitions go on.
    """
    chosen, *others = matches
    tokens = _continuation(text, chosen.at, max_tokens, wraps=wraps)
    confidences: list[float] = []
    while others and len(confidences) < len(tokens):
        i = len(confidences)
        agreeing = [match for match in others if _token_at(text, match.at, i, wraps=wraps) == tokens[i]]
        confidences.append(confidence(chosen.length + i, 1 + len(agreeing), 1 + len(others)))
        others = agreeing  # a match that differs once says nothing about the rest
    lengths = range(chosen.length + len(confidences), chosen.length + len(tokens))
    confidences += [length / (length + _HALF) for length in lengths]
    return tokens, confidences


def _continuation(text: Sequence[int], at: int, max_tokens: int, *, wraps: bool) -> list[int]:
    tokens = list(text[at : at + max_tokens])
    if wraps and tokens:
        period = len(text) - at
        while len(tokens) < max_tokens:
            tokens += tokens[:period][: max_tokens - len(tokens)]
    return tokens


def _token_at(text: Sequence[int], at: int, i: int, *, wraps: bool) -> int | None:
    if wraps:
        return text[at + i % (len(text) - at)]
    return text[at + i] if at + i < len(text) else None
