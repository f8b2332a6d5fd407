"""Which side branches to draft: those whose next token is most likely to be committed.

A branch leaves the main path before one of its tokens and begins with a runner-up of the draft model there:
because of the shared noise these are the likeliest tokens for the lead to recover. The probability of a
path is the product of the confidences along it.
"""

from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from shared.drafting.drafter_options import DrafterOptions
from shared.drafting.sequence_state import DraftPath, SequenceState
from shared.sampling.coupled_choice import RankedToken


@dataclass(frozen=True, slots=True)
class BranchCandidate:
    """A branch that could be started at position `start` with the token `first`."""

    start: int
    first: RankedToken
    probability: float


def choose(
    sequence: SequenceState, options: DrafterOptions, end_tokens: frozenset[int], n: int
) -> list[DraftPath | BranchCandidate]:
    """At most `n` branches to continue or to start, best first."""
    prefix_probabilities = _prefix_probabilities(sequence)
    minimum = options.min_branch_probability
    ranked: list[tuple[float, DraftPath | BranchCandidate]] = [
        (probability, branch)
        for branch in sequence.branches
        if _can_grow(sequence, branch, options, end_tokens)
        and (probability := _probability(sequence, branch, prefix_probabilities)) >= minimum
    ]
    if (n_free := options.n_branches - len(sequence.branches)) > 0:
        candidates = _candidates(sequence, options, end_tokens, prefix_probabilities)
        ranked += [(candidate.probability, candidate) for candidate in candidates[:n_free]]
    ranked.sort(key=lambda pair: -pair[0])
    return [each for _, each in ranked[:n]]


def _prefix_probabilities(sequence: SequenceState) -> list[float]:
    """[i]: the probability that the first i tokens of the main path are all committed."""
    return list(accumulate((each.confidence for each in sequence.main.drafted), mul, initial=1.0))


def _probability(sequence: SequenceState, branch: DraftPath, prefix_probabilities: list[float]) -> float:
    return prefix_probabilities[branch.start - sequence.main.start] * branch.confidence


def _can_grow(
    sequence: SequenceState, branch: DraftPath, options: DrafterOptions, end_tokens: frozenset[int]
) -> bool:
    return (
        branch.unranked is None
        and len(branch.drafted) < options.n_branch_tokens
        and branch.end - sequence.main.start < options.n_ahead
        and branch.end - sequence.window_start <= options.n_window
        and branch.drafted[-1].token not in end_tokens
    )


def _candidates(
    sequence: SequenceState,
    options: DrafterOptions,
    end_tokens: frozenset[int],
    prefix_probabilities: list[float],
) -> list[BranchCandidate]:
    """The branches that could be started now, likeliest first."""
    taken = {(branch.start, branch.drafted[0].token) for branch in sequence.branches}
    main = sequence.main
    # A branch's cache begins as a copy of the main path's, which is refilled after the window has moved.
    n_cached_end = sequence.window_start + len(main.cache)
    last = min(n_cached_end, main.start + options.n_ahead - 2)
    minimum = options.min_branch_probability
    candidates = []
    for start, each in enumerate(main.drafted, main.start):
        prefix_probability = prefix_probabilities[start - main.start]
        if start > last or prefix_probability < minimum:
            break
        if start <= sequence.window_start or not main.cache.can_fork(start - sequence.window_start):
            continue
        for runner_up in each.runners_up:
            probability = prefix_probability * runner_up.confidence
            if probability < minimum:
                break
            if runner_up.token not in end_tokens and (start, runner_up.token) not in taken:
                candidates.append(BranchCandidate(start, runner_up, probability))
    return sorted(candidates, key=lambda candidate: -candidate.probability)
