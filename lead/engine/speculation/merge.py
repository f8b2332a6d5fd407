"""Merging drafts: the best chain among what several sources propose at the same place.

Where sources agree their drafts are one; where they conflict, the branch with more expected tokens wins.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from operator import mul
from typing import Literal

from lead.engine.speculation.draft_chain import EMPTY_CHAIN, MAX_DEPTH, DraftChain
from lead.engine.speculation.draft_tree import DraftToken

Agreement = Literal["single", "agreed", "conflicting"]
"""Of a proposed token: no other source proposed one; one proposed the same; all others proposed another."""

EstimateAcceptance = Callable[[str, float | None, Agreement], float]
"""The probability that a token of (source, confidence, agreement) is accepted if those before it are."""

_Chosen = tuple[int, str, float]
"""A token, its source, and the probability that it is accepted."""


def agreement_on(token: int, proposed: Sequence[int]) -> Agreement:
    """`proposed`: one token of each source at this place, `token` among them."""
    if len(proposed) == 1:
        return "single"
    return "agreed" if proposed.count(token) > 1 else "conflicting"


def best_chain(
    drafts: Mapping[str, Sequence[DraftToken]], estimate: EstimateAcceptance, min_survival: float
) -> DraftChain:
    """The chain with the most expected accepted tokens; its parts may come from different sources.

    It ends where the probability that all of it is accepted falls below `min_survival`.
    """
    chosen = _Merge(drafts, estimate, min_survival).after(list(drafts), 0, 1.0)
    return DraftChain(*zip(*chosen, strict=True)) if chosen else EMPTY_CHAIN


def probabilities_of(
    drafts: Mapping[str, Sequence[DraftToken]], source: str, estimate: EstimateAcceptance
) -> tuple[float, ...]:
    """Of each token that `source` proposes: that it is accepted if those before it are.

    Other sources count that agree with all tokens before it: they agree with this one, too, or conflict.
    """
    probabilities, sources = [], list(drafts)
    for place, own in enumerate(drafts[source]):
        here = [(each, drafts[each][place]) for each in sources if place < len(drafts[each])]
        agreement = agreement_on(own.token, [draft.token for _, draft in here])
        agreeing = [(each, draft) for each, draft in here if draft.token == own.token]
        probabilities.append(max(estimate(each, draft.confidence, agreement) for each, draft in agreeing))
        sources = [each for each, _ in agreeing]
    return tuple(probabilities)


def probabilities_behind(
    drafts: Mapping[str, Sequence[DraftToken]], source: str, estimate: EstimateAcceptance
) -> tuple[float, ...]:
    """Of what others propose behind the draft of `source`, as far as they agree with all of it."""
    own = [draft.token for draft in drafts.get(source, ())]
    others = [
        name
        for name, draft in drafts.items()
        if name != source and [each.token for each in draft[: len(own)]] == own
    ]
    if not others:
        return ()
    return tuple(
        probability for _, _, probability in _Merge(drafts, estimate, 0.0).after(others, len(own), 1.0)
    )


class _Merge:
    def __init__(
        self, drafts: Mapping[str, Sequence[DraftToken]], estimate: EstimateAcceptance, min_survival: float
    ) -> None:
        self._drafts = drafts
        self._estimate = estimate
        self._min_survival = min_survival

    def after(self, sources: list[str], start: int, survival: float) -> list[_Chosen]:
        """The best chain from place `start` on, among those of `sources`, which agree before it."""
        if len(sources) == 1:
            return self._of_one(sources[0], start, survival)
        chosen: list[_Chosen] = []
        for place in range(start, MAX_DEPTH):
            here = [
                (source, self._drafts[source][place])
                for source in sources
                if place < len(self._drafts[source])
            ]
            if not here or survival < self._min_survival:
                break
            tokens = [draft.token for _, draft in here]
            if tokens.count(tokens[0]) < len(tokens):
                return chosen + self._best_fork(here, place, survival)
            if len(here) == 1:
                return chosen + self._of_one(here[0][0], place, survival)
            best = self._likeliest(here, "agreed")
            chosen.append(best)
            survival *= best[2]
            sources = [source for source, _ in here]
        return chosen

    def _of_one(self, source: str, start: int, survival: float) -> list[_Chosen]:
        """The rest of one source's draft, where no other source proposes anything."""
        chosen: list[_Chosen] = []
        for token, confidence in self._drafts[source][start:MAX_DEPTH]:
            if survival < self._min_survival:
                break
            probability = self._estimate(source, confidence, "single")
            chosen.append((token, source, probability))
            survival *= probability
        return chosen

    def _best_fork(self, here: list[tuple[str, DraftToken]], place: int, survival: float) -> list[_Chosen]:
        """Of the conflicting tokens at `place`, the one with the most expected tokens from there on."""
        tokens = [draft.token for _, draft in here]
        forks = []
        for token in dict.fromkeys(tokens):
            agreeing = [(source, draft) for source, draft in here if draft.token == token]
            first = self._likeliest(agreeing, agreement_on(token, tokens))
            rest = self.after([source for source, _ in agreeing], place + 1, survival * first[2])
            forks.append([first, *rest])
        return max(forks, key=_expected_tokens)

    def _likeliest(self, here: Sequence[tuple[str, DraftToken]], agreement: Agreement) -> _Chosen:
        """The token that all in `here` propose, with the source that predicts such tokens best."""
        probability, source = max(
            (self._estimate(source, draft[1], agreement), source) for source, draft in here
        )
        return here[0][1].token, source, probability


def _expected_tokens(chain: Sequence[_Chosen]) -> float:
    """How many of its tokens will be accepted on average."""
    return float(sum(accumulate((probability for _, _, probability in chain), mul)))
