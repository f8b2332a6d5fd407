"""Which side branches pay: best first, by the chance that their next token is on the committed text.

A branch leaves the main line before one of its tokens and begins with a runner-up of the draft model's there:
under the shared noise those are the likeliest tokens for the lead to recover. The chance of a path is the
product of the confidences along it.
"""

from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from back.followed import Followed
from back.line import Line
from back.options import DrafterOptions
from shared.sampling.sampler import Choice


@dataclass(frozen=True, slots=True)
class Fork:
    """A branch that may be started at position `start`."""

    start: int
    runner_up: Choice
    worth: float


def choose(
    followed: Followed, options: DrafterOptions, end_tokens: frozenset[int], n: int
) -> list[Line | Fork]:
    """At most `n` branches to go on with or to start, best first."""
    reach = _reach(followed)
    n_room = max(0, options.n_branches - len(followed.branches))
    worths: list[tuple[float, Line | Fork]] = [
        (worth, branch)
        for branch in followed.branches
        if _may_grow(followed, branch, options, end_tokens)
        and (worth := _worth(followed, branch, reach)) >= options.least_worth
    ]
    worths += [(fork.worth, fork) for fork in _forks(followed, options, end_tokens, reach)[:n_room]]
    worths.sort(key=lambda pair: -pair[0])
    return [each for _, each in worths[:n]]


def _reach(followed: Followed) -> list[float]:
    """reach[i]: the chance that the text follows the first i tokens of the main line."""
    return list(accumulate((each.confidence for each in followed.main.drafted), mul, initial=1.0))


def _worth(followed: Followed, branch: Line, reach: list[float]) -> float:
    return reach[branch.start - followed.main.start] * branch.confidence


def _may_grow(followed: Followed, branch: Line, options: DrafterOptions, end_tokens: frozenset[int]) -> bool:
    return (
        len(branch.drafted) < options.n_branch_tokens
        and branch.end - followed.main.start < options.n_ahead
        and branch.end - followed.window_start <= options.n_window
        and branch.drafted[-1].token not in end_tokens
    )


def _forks(
    followed: Followed, options: DrafterOptions, end_tokens: frozenset[int], reach: list[float]
) -> list[Fork]:
    """The branches that might be started now, the likeliest first."""
    taken = {(branch.start, branch.drafted[0].token) for branch in followed.branches}
    main = followed.main
    # A branch's cache begins as a copy of the main line's, which after a slide has to be filled again.
    n_cached_end = followed.window_start + len(main.cache)
    last = min(n_cached_end, main.start + options.n_ahead - 2)
    forks = []
    for start, each in enumerate(main.drafted, main.start):
        if start > last:
            break
        if start <= followed.window_start:
            continue
        for runner_up in each.runners_up:
            worth = reach[start - main.start] * runner_up.confidence
            if worth < options.least_worth:
                break
            if runner_up.token not in end_tokens and (start, runner_up.token) not in taken:
                forks.append(Fork(start, runner_up, worth))
    return sorted(forks, key=lambda fork: -fork.worth)
