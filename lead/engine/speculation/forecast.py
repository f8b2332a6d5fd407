"""Forecasts how many draft tokens are right and when more arrive, learned from all drafts and commits.

The probability that a token is right is its source's confidence, corrected by the outcomes of similar tokens
so far. These probabilities decide which chain, among the drafts of all sources, is the best.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul
from typing import NamedTuple

from lead.engine.speculation.arrivals import AT_ONCE, Arrival, Arrivals, FutureDraft
from lead.engine.speculation.constants import DEFAULTS, MAX_DEPTH, SpeculationConstants
from lead.engine.speculation.drafts import (
    Agreement,
    DraftChain,
    Drafts,
    DraftToken,
    Probabilities,
    agreement_on,
    survival,
)

_MAX_PLACES = 16
"""The number of places in a draft that are counted separately; the last one includes all further places."""


class Candidate(NamedTuple):
    """A sequence whose next token is due: the best chain of its `drafts`, and how the chain may grow.

    n_useful: the maximum number of draft tokens that can be committed; `chain` is at most as long. n_fed:
    the number of committed tokens decoded before the draft; more than one if accepted tokens are replayed.
    awaited: tokens that backs are about to add. inline: tokens that the engine may draft itself; `n_inline`
    tokens of the chain came from its drafter. is_drafting: a source is drafting for the sequence, and was not
    silent for long.
    """

    drafts: Drafts
    n_useful: int
    n_fed: int = 1
    chain: DraftChain = ()
    awaited: tuple[FutureDraft, ...] = ()
    inline: FutureDraft | None = None
    n_inline: int = 0
    is_drafting: bool = False

    @property
    def probabilities(self) -> Probabilities:
        """The probability, for each token of the chain, that it and all tokens before it are accepted."""
        return survival(self.chain)


@dataclass(slots=True)
class _Counts:
    """Counts of outcomes, weighted by their age."""

    n_outcomes: float = 0.0
    n_right: float = 0.0

    def add(self, right: bool, decay: float) -> None:
        self.n_outcomes = self.n_outcomes * decay + 1
        self.n_right = self.n_right * decay + right


@dataclass(slots=True)
class _SourceRecord:
    """The outcomes of a source's tokens. bins: counts by confidence and agreement (None: any)."""

    bins: defaultdict[tuple[int, Agreement | None], _Counts] = field(
        default_factory=lambda: defaultdict(_Counts)
    )
    by_place: list[list[int]] = field(default_factory=lambda: [[0, 0] for _ in range(_MAX_PLACES)])
    mean: _Counts = field(default_factory=_Counts)


class Forecast:
    """Estimates how many draft tokens are right. arrivals: when tokens of backs arrive.

    An estimate is a count of outcomes, to which the source's own confidence is added as a few more outcomes.
    """

    def __init__(self, constants: SpeculationConstants = DEFAULTS) -> None:
        self.arrivals = Arrivals(constants)
        self._edges = constants.confidence_edges
        self._max_awaited = constants.max_awaited
        self._decay = constants.acceptance_decay
        self._n_prior = constants.acceptance_prior  # outcomes that a prior counts for
        self._unknown = constants.unknown_acceptance
        self._mean_decay = constants.mean_acceptance_decay
        self._n_deviations = constants.inline_upper_deviations
        self._records: defaultdict[str, _SourceRecord] = defaultdict(_SourceRecord)

    @property
    def sources(self) -> list[str]:
        """The sources that are connected, or whose tokens have been scored."""
        return sorted({*self._records, *self.arrivals.known})

    def learn(self, drafted: DraftToken, agreement: Agreement, place: int, right: bool) -> None:
        """Count the outcome of a proposed token (`drafts.Learn`)."""
        record = self._records[drafted.source]
        bin_ = self._bin_of(drafted.confidence)
        record.bins[bin_, None].add(right, self._decay)
        if agreement != "single":
            record.bins[bin_, agreement].add(right, self._decay)
        record.mean.add(right, self._mean_decay)
        counts = record.by_place[min(place, _MAX_PLACES - 1)]
        counts[0] += 1
        counts[1] += right

    def probability(self, source: str, confidence: float | None, agreement: Agreement) -> float:
        """Return the probability that a token is accepted if all tokens before it are."""
        prior = self._unknown if confidence is None else confidence
        record = self._records.get(source)
        if record is None:
            return prior
        bin_ = -1 if confidence is None else bisect_right(self._edges, confidence)
        n_prior = self._n_prior
        if all_ := record.bins.get((bin_, None)):  # `_posterior` inlined: every step comes here
            prior = (all_.n_right + n_prior * prior) / (all_.n_outcomes + n_prior)
        if agreement != "single" and (some := record.bins.get((bin_, agreement))):
            prior = (some.n_right + n_prior * prior) / (some.n_outcomes + n_prior)
        return prior

    def mean(self, source: str) -> float:
        """Return the probability that a token of `source` that has not arrived yet will be right."""
        record = self._records.get(source)
        return self._posterior(record.mean, self._unknown) if record else self._unknown

    def upper_mean(self, source: str) -> float:
        """Return an upper confidence bound of `mean`, for sources that draft only if drafting seems to pay.

        With `mean` itself, a little bad luck would end a source's drafts for good.
        """
        mean = self.mean(source)
        record = self._records.get(source)
        n_outcomes = record.mean.n_outcomes if record else 0.0
        deviation = math.sqrt(mean * (1 - mean) / (n_outcomes + self._n_prior))
        return min(1.0, mean + self._n_deviations * deviation)

    def best(self, drafts: Drafts, min_probability: float = 0.0) -> list[DraftToken]:
        """Return the chain with the most expected accepted tokens; its parts may come from different sources.

        It ends where the probability that all of it is accepted falls below `min_probability`, and after at
        most MAX_DEPTH tokens. Its confidences are the forecast's.
        """
        branches = drafts.branches
        return _Merge(self.probability, min_probability).after(branches, 0, 1.0) if branches else []

    def outlook(self, drafts: Drafts, source: str) -> tuple[list[float], list[DraftToken]]:
        """Return the probabilities of the tokens of `source`, and the chain that other sources propose after
        them.

        Each probability assumes that all tokens before it are accepted. The tokens of another source count
        only if that source agrees with all tokens before them. The chain is chosen as in `best`.
        """
        own, probabilities = drafts.branch(source), list[float]()
        agreeing = drafts.branches
        for place, drafted in enumerate(own):
            if len(agreeing) == 1:  # no other source is left
                alone = [self.probability(source, each.confidence, "single") for each in own[place:]]
                return probabilities + alone, []
            agreeing = [each for each in agreeing if place < len(each)]
            agreement = agreement_on(drafted.token, [each[place].token for each in agreeing])
            agreeing = [each for each in agreeing if each[place].token == drafted.token]
            here = [each[place] for each in agreeing]
            probabilities.append(
                max(self.probability(each.source, each.confidence, agreement) for each in here)
            )
        others = [each for each in agreeing if len(each) > len(own)]
        if not others:
            return probabilities, []
        return probabilities, _Merge(self.probability, 0.0).after(others, len(own), 1.0)

    def awaited(self, drafts: Drafts, source: str, n_useful: int, now: float) -> FutureDraft | None:
        """Return the tokens that a back is about to add to its draft of a sequence; None: unknown."""
        arrival = self.arrivals.expected(drafts, source, now)
        if arrival is None:
            return None
        n_max = min(n_useful, self._max_awaited)
        return self.future(drafts, source, self.mean(source), n_useful, n_max, arrival)

    def future(  # noqa: PLR0917 - a draft, and what is known of its next tokens
        self,
        drafts: Drafts,
        source: str,
        mean: float,
        n_useful: int,
        n_max: int,
        arrival: Arrival = AT_ONCE,
    ) -> FutureDraft:
        """Return a source's draft and its next tokens, `n_max` in all; each next token is right with
        probability `mean`.

        The tokens of other sources show how hard a position is: half of their deviation from the usual
        probability is added to this source's probability there.
        """
        own, following = self.outlook(drafts, source)
        del own[n_useful:]
        n_drafted = len(own)
        own += [
            min(1.0, max(0.0, mean + ((each.confidence or 0.0) - self.mean(each.source)) / 2))
            for each in following
        ]
        n_max = max(n_drafted, n_max)
        own += [mean] * (n_max - len(own))
        return FutureDraft(tuple(accumulate(own[:n_max], mul)), n_drafted, arrival)

    def connect(self, backs: Iterable[str], own: Iterable[str], sequences: Iterable[Drafts]) -> None:
        """Forget all sources except these, because another back of the same name may be different."""
        known = {*backs, *own}
        for gone in self._records.keys() - known:
            del self._records[gone]
        self.arrivals.connect(backs, sequences)

    def describe(self, source: str) -> dict[str, object]:
        """Return a source's record for `GET /v1/speculation`.

        It has the source's times, and the share of right tokens by position (None: no tokens) and by
        confidence.
        """
        record = self._records.get(source, _SourceRecord())
        n_places = max((place + 1 for place, (n, _) in enumerate(record.by_place) if n), default=0)
        return {
            "n_scored": sum(n for n, _ in record.by_place),
            "n_right": sum(right for _, right in record.by_place),
            "acceptance_by_position": [
                round(right / n, 4) if n else None for n, right in record.by_place[:n_places]
            ],
            "calibration": [
                {
                    "confidence_from": self._lower_edge(bin_),
                    "chance": round(counts.n_right / counts.n_outcomes, 4),
                }
                for (bin_, agreement), counts in sorted(record.bins.items(), key=lambda item: item[0][0])
                if agreement is None
            ],
            **self.arrivals.describe(source),
        }

    def _posterior(self, counts: _Counts, prior: float) -> float:
        return (counts.n_right + self._n_prior * prior) / (counts.n_outcomes + self._n_prior)

    def _bin_of(self, confidence: float | None) -> int:
        return -1 if confidence is None else bisect_right(self._edges, confidence)

    def _lower_edge(self, bin_: int) -> float | None:
        if bin_ < 0:
            return None
        return 0.0 if bin_ == 0 else self._edges[bin_ - 1]


_Estimate = Callable[[str, float | None, Agreement], float]
"""The type of `Forecast.probability`."""


class _Merge:
    """Merges the drafts of several sources into one chain.

    Where they differ, the chain takes the token after which more accepted tokens are expected.
    """

    def __init__(self, estimate: _Estimate, min_probability: float) -> None:
        self._estimate = estimate
        self._min_probability = min_probability

    def after(self, branches: Sequence[DraftChain], start: int, reached: float) -> list[DraftToken]:
        """Return the best chain from place `start` on, among `branches` that agree before it.

        reached: the probability that all tokens before `start` are accepted.
        """
        if len(branches) == 1:
            return self._of_one(branches[0], start, reached)
        chosen: list[DraftToken] = []
        for place in range(start, MAX_DEPTH):
            branches = [each for each in branches if place < len(each)]
            if not branches or reached < self._min_probability:
                break
            here = [each[place] for each in branches]
            tokens = [each.token for each in here]
            if tokens.count(tokens[0]) < len(tokens):
                return chosen + self._best_fork(branches, place, reached)
            if len(branches) == 1:
                return chosen + self._of_one(branches[0], place, reached)
            best, probability = self._likeliest(here, "agreed")
            chosen.append(best)
            reached *= probability
        return chosen

    def _of_one(self, branch: DraftChain, start: int, reached: float) -> list[DraftToken]:
        """Return the rest of one source's draft, where no other source proposes tokens."""
        chosen: list[DraftToken] = []
        for token, source, confidence in branch[start:MAX_DEPTH]:
            if reached < self._min_probability:
                break
            probability = self._estimate(source, confidence, "single")
            chosen.append(DraftToken(token, source, probability))
            reached *= probability
        return chosen

    def _best_fork(self, branches: Sequence[DraftChain], place: int, reached: float) -> list[DraftToken]:
        """Return the chain with the most expected tokens among those that begin with the tokens at
        `place`.
        """
        tokens = [each[place].token for each in branches]
        forks = []
        for token in dict.fromkeys(tokens):
            agreeing = [each for each in branches if each[place].token == token]
            agreement = agreement_on(token, tokens)
            first, probability = self._likeliest([each[place] for each in agreeing], agreement)
            forks.append([first, *self.after(agreeing, place + 1, reached * probability)])
        return max(forks, key=lambda fork: sum(survival(fork)))

    def _likeliest(self, here: Sequence[DraftToken], agreement: Agreement) -> tuple[DraftToken, float]:
        """Return the token that all of `here` propose, from the source with the highest probability
        for it.
        """
        probability, source = max(
            (self._estimate(source, confidence, agreement), source) for _, source, confidence in here
        )
        return DraftToken(here[0].token, source, probability), probability
