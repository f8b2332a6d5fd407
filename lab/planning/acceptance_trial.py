"""Measures how often drafters guess the target's next token, and how long a guess takes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lead.engine.drafters.draft_source import InlineDraft, InlineDrafter
from lead.engine.target import Target
from shared.llama.span import Span
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Sampler

_N_MIN = 16
"""The minimum number of positions to try, however long that takes."""
_WHOLE_PROMPT = 1 << 30


@dataclass(slots=True)
class DraftTrial:
    """The guesses of a drafter, and the seconds of its rounds with one token."""

    n_right: int = 0
    n_positions: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def token_s(self) -> float:
        """The median seconds of a round; 0 without rounds."""
        return median(self.seconds) if self.seconds else 0.0


class AcceptanceTrial:
    """Generates with the target, token by token, and asks each drafter for every token beforehand."""

    def __init__(
        self,
        target: Target,
        drafters: Sequence[InlineDrafter[Any]],
        make_sampler: Callable[[SamplingParameters, list[int]], Sampler],
        end_tokens: frozenset[int],
        clock: Callable[[], float],
        *,
        n_batch: int,
    ) -> None:
        """n_batch: the number of tokens that the target decodes at once.

        Slot 0 of the target is empty, and is left empty.
        """
        self._target = target
        self._n_batch = n_batch
        self._drafters = drafters
        self._make_sampler = make_sampler
        self._end_tokens = end_tokens
        self._clock = clock
        self.trials = {drafter.source: DraftTrial() for drafter in drafters}
        self._choosing: list[float] = []
        self._n_tried = 0

    @property
    def choose_s(self) -> float:
        """The median seconds to sample a token from the target's logits; 0 if no token was sampled."""
        return median(self._choosing) if self._choosing else 0.0

    def run(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingParameters, n_each: int, max_seconds: float
    ) -> None:
        """Generate up to `n_each` tokens after each of `prompts` (none may be empty), within about
        `max_seconds` in all.
        """
        until = self._clock() + max_seconds
        for number, prompt in enumerate(prompts):
            if self._is_over(until):
                return
            parameters = sampling.model_copy(update={"seed": number + 1})
            self._follow(f"text-{number}", list(prompt), parameters, n_each, until)

    def _follow(
        self, sequence: str, tokens: list[int], sampling: SamplingParameters, n_tokens: int, until: float
    ) -> None:
        sampler = self._make_sampler(sampling, tokens)
        drafts: list[InlineDraft] = [drafter.open(sequence, sampling, tokens) for drafter in self._drafters]
        for draft in drafts:
            draft.place(0, tokens)
        guesses: dict[str, int] = {}
        n_decoded = self._read(tokens)
        for _ in range(n_tokens):
            (rows,) = self._target.decode([Span(0, n_decoded, tokens[n_decoded:], 1)])
            n_decoded = len(tokens)
            chosen = self._choose(sampler, rows[0], n_decoded)
            self._compare(guesses, chosen)
            tokens.append(chosen)
            if chosen in self._end_tokens or self._is_over(until):
                break
            guesses = {
                drafter.source: self._guess(drafter, draft)
                for drafter, draft in zip(self._drafters, drafts, strict=True)
            }
        for draft in drafts:
            draft.leave()
        self._target.trim(0, 0)

    def _read(self, prompt: Sequence[int]) -> int:
        """Decode the prompt until the rest fits into a batch; return the number of decoded tokens."""
        n_decoded = 0
        while len(prompt) - n_decoded > self._n_batch:
            self._target.decode([Span(0, n_decoded, prompt[n_decoded : n_decoded + self._n_batch], 0)])
            n_decoded += self._n_batch
        return n_decoded

    def _choose(self, sampler: Sampler, logits: NDArray[np.float32], position: int) -> int:
        began = self._clock()
        chosen = sampler.choose(logits, position)
        self._choosing.append(self._clock() - began)
        return chosen

    def _compare(self, guesses: dict[str, int], chosen: int) -> None:
        for source, guess in guesses.items():
            self.trials[source].n_positions += 1
            self.trials[source].n_right += guess == chosen
        self._n_tried += bool(guesses)

    def _guess(self, drafter: InlineDrafter[Any], draft: InlineDraft) -> int:
        """Return the next token; -1 if the drafter has none."""
        while draft.n_pending is not None:
            began = self._clock()
            n_tokens, grown = drafter.draft([draft], _WHOLE_PROMPT)
            if n_tokens == 1:
                self.trials[drafter.source].seconds.append(self._clock() - began)
            if grown:
                return draft.continuation[0][0]
            if not n_tokens:
                break
        return -1

    def _is_over(self, until: float) -> bool:
        return self._n_tried >= _N_MIN and self._clock() >= until
