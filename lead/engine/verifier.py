"""What a step's logits mean: drafts are compared with what each sequence's sampler chooses.

A choice under a grammar may not be ready when the step is over. It gets a share of the step's time; beyond
that its sequence sits out the next steps, and the others go on.
"""

import logging
import math
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lead.engine.events import Committed, Failed, TokenProbabilities
from lead.engine.sequence import EngineSequence, Verification
from lead.engine.slot import Slot
from lead.engine.speculation.drafts import DraftChain
from shared.errors import PendingAnswerError, RequestError
from shared.sampling.constrained import GrammarBudget
from shared.sampling.sampler import Sampler
from shared.sampling.top_k import top_k

log = logging.getLogger("engine")

_GRAMMAR_SHARE = 0.25
"""How much longer a step may take because of grammars."""
_LEAST_GRAMMAR_SECONDS = 0.001
"""The least of that: a usual answer takes a tenth of it."""
_ALONE_GRAMMAR_SECONDS = 0.005
"""Where nothing else runs: until commands are looked at again."""

SlotOutcome = tuple[Slot, Committed | Failed]
"""What a slot's sequence is to commit, or why it cannot go on."""

_LEAST = -1e9
"""JSON has no infinity."""


def model_probabilities(logits: NDArray[np.float32], token: int, n: int) -> TokenProbabilities:
    """Logarithms of the model's own probabilities, before any filter: of `token` and of the `n` likeliest.

    `logits` is of shape (n_vocab,) and not modified.
    """
    largest = float(logits.max())
    norm = largest + math.log(float(np.exp(logits - largest, dtype=np.float64).sum()))
    top = [(int(i), _finite(float(logits[i]) - norm)) for i in top_k(logits, n)]
    return TokenProbabilities(chosen=_finite(float(logits[token]) - norm), top=top)


def filtered_probabilities(
    sampler: Sampler, logits: NDArray[np.float32], position: int, token: int, n: int
) -> TokenProbabilities:
    """Probabilities, not their logarithms, among the candidates that the filters leave."""
    ids, weights = sampler.distribution(logits, position)
    order = np.lexsort((ids, -weights))[:n]
    chosen = weights[ids == token]
    # If a grammar rejected the first choice, the chosen token is not among these.
    return TokenProbabilities(
        chosen=float(chosen[0]) if len(chosen) else 1.0,
        top=[(int(ids[i]), float(weights[i])) for i in order] if len(chosen) else [(token, 1.0)][:n],
    )


def _finite(value: Any) -> float:
    return max(float(value), _LEAST)


class VerifiedTokens(NamedTuple):
    """tokens[:n_accepted] equal the draft; one more follows unless the sequence ended inside the draft."""

    tokens: list[int]
    n_accepted: int


def verify(
    draft: Sequence[int],
    choose: Callable[[int], int],
    end_tokens: Container[int],
    tokens: list[int] | None = None,
) -> VerifiedTokens:
    """Follow `draft` as long as the target agrees; it never influences what the target chooses.

    `choose(i)` is the target's token after the committed ones and draft[:i]; it is called for i = 0, 1, … in
    order, and only while draft[:i] has been accepted. The last token is the recovered one (the target's own
    at the first mismatch) or the bonus after a fully accepted draft; nothing follows an end token.

    tokens: what was chosen before `choose` raised an error; it goes on from there, in the same list.
    """
    tokens = [] if tokens is None else tokens
    for i in range(len(tokens), len(draft) + 1):
        token = choose(i)
        tokens.append(token)
        accepted = i < len(draft) and token == draft[i]
        if not accepted:
            return VerifiedTokens(tokens, i)
        if token in end_tokens:
            break
    return VerifiedTokens(tokens, len(tokens))


class Verifier:
    """Keeps what is being verified in the sequences. Act on each outcome before reading the next one."""

    def __init__(self, end_tokens: frozenset[int], budget: GrammarBudget) -> None:
        self._end_tokens = end_tokens
        self._budget = budget

    def begin_step(self) -> None:
        """No choice is waited for until `end_step`: those that are ready come first."""
        self._budget.set(0.0)

    def begin(self, slot: Slot, draft: DraftChain, rows: NDArray[np.float32]) -> Iterator[SlotOutcome]:
        """Verify `draft`; rows: shape (n_draft + 1, n_vocab), valid until `end_step`."""
        assert slot.sequence
        slot.sequence.verification = Verification(draft, rows)
        yield from self._outcomes(slot)

    def end_step(self, slots: Sequence[Slot], seconds: float) -> Iterator[SlotOutcome]:
        """Wait for choices that are not ready, for a share of the `seconds` that the step has taken."""
        yield from self._try(slots, max(_LEAST_GRAMMAR_SECONDS, _GRAMMAR_SHARE * seconds))
        for slot in slots:
            if slot.sequence and (verification := slot.sequence.verification):
                verification.rows = verification.rows.copy()  # the model reuses their memory

    def go_on(self, running: Sequence[Slot]) -> Iterator[SlotOutcome]:
        """Look again at choices that were not ready when their step was over."""
        is_alone = all(slot.is_waiting for slot in running)
        return self._try(running, _ALONE_GRAMMAR_SECONDS if is_alone else 0.0)

    def _try(self, slots: Iterable[Slot], seconds: float) -> Iterator[SlotOutcome]:
        """Choices that are ready within `seconds`, which each has an equal part of."""
        waiting = [slot for slot in slots if slot.is_waiting]
        for slot in waiting:
            self._budget.set(seconds / len(waiting))
            if slot.sequence and slot.sequence.sampler.is_ready:
                yield from self._outcomes(slot)

    def _outcomes(self, slot: Slot) -> Iterator[SlotOutcome]:
        """One, or none if a choice is not ready."""
        assert slot.sequence
        outcome = self._outcome(slot.sequence)
        if outcome is not None:
            yield slot, outcome

    def _outcome(self, sequence: EngineSequence) -> Committed | Failed | None:
        verification = sequence.verification
        assert verification
        try:
            verified = self._verify(sequence, verification)
        except PendingAnswerError:
            return None
        except RequestError as error:  # its grammar has become too complex
            return Failed(sequence=sequence.id, reason=str(error), param=error.param)
        except MemoryError:  # not the sequence's fault: the next engine process continues it
            raise
        except Exception:
            log.exception("sequence %s cannot continue", sequence.id)
            reason = "a token could not be chosen; see the lead's log"
            return Failed(sequence=sequence.id, reason=reason, param=None)
        sequence.verification = None
        return _committed(sequence, verification, verified)

    def _verify(self, sequence: EngineSequence, verification: Verification) -> VerifiedTokens:
        """The tokens that the sequence commits; adds their probabilities if requested."""
        start, rows = len(sequence.tokens), verification.rows

        def choose(i: int) -> int:
            token = sequence.sampler.choose(rows[i], start + i)
            if sequence.request.n_probs is not None:
                verification.probabilities.append(_probabilities(sequence, rows[i], start + i, token))
            sequence.sampler.accept(token)
            return token

        return verify(verification.draft.tokens, choose, self._end_tokens, verification.chosen)


def _committed(sequence: EngineSequence, verification: Verification, verified: VerifiedTokens) -> Committed:
    draft = verification.draft
    return Committed(
        sequence=sequence.id,
        start=len(sequence.tokens),
        tokens=verified.tokens,
        n_accepted=verified.n_accepted,
        rejected=list(draft.tokens[verified.n_accepted :]),
        sources=list(draft.sources),
        probabilities=verification.probabilities,
    )


def _probabilities(
    sequence: EngineSequence, row: NDArray[np.float32], position: int, token: int
) -> TokenProbabilities:
    n = sequence.request.n_probs or 0
    if sequence.request.filtered:
        return filtered_probabilities(sequence.sampler, row, position, token, n)
    return model_probabilities(row, token, n)
