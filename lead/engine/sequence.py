"""A sequence that the engine is generating: its text, and the draft under verification."""

import logging
import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lead.engine.commands import Submit
from lead.engine.context_shift import ContextShift
from lead.engine.events import Committed, Failed, TokenProbabilities
from lead.engine.speculation.drafts import DraftChain, Drafts
from shared.errors import PendingAnswerError, RequestError, UnavailableError
from shared.sampling.parameters import MAX_TEXT_TOKENS
from shared.sampling.sampler import Sampler
from shared.sampling.top_k import top_k

log = logging.getLogger("engine")

_MIN_LOGPROB = -1e9
"""Log-probabilities are at least this, because JSON has no infinity."""


def model_probabilities(logits: NDArray[np.float32], token: int, n: int) -> TokenProbabilities:
    """Return the model's log-probabilities, before any filter, of `token` and of the `n` likeliest tokens.

    `logits` has shape (n_vocab,) and is not modified.
    """
    largest = float(logits.max())
    norm = largest + math.log(float(np.exp(logits - largest, dtype=np.float64).sum()))
    top = [(int(i), _finite(float(logits[i]) - norm)) for i in top_k(logits, n)]
    return TokenProbabilities(chosen=_finite(float(logits[token]) - norm), top=top)


def filtered_probabilities(
    sampler: Sampler, logits: NDArray[np.float32], position: int, token: int, n: int
) -> TokenProbabilities:
    """Return probabilities (not logarithms) of `token` and the `n` likeliest tokens after the filters."""
    ids, weights = sampler.distribution(logits, position)
    order = np.lexsort((ids, -weights))[:n]
    chosen = weights[ids == token]
    # If a grammar rejected the first choice, the chosen token is not among these.
    return TokenProbabilities(
        chosen=float(chosen[0]) if len(chosen) else 1.0,
        top=[(int(ids[i]), float(weights[i])) for i in order] if len(chosen) else [(token, 1.0)][:n],
    )


def _finite(value: Any) -> float:
    return max(float(value), _MIN_LOGPROB)


def verify(
    draft: Sequence[int], choose: Callable[[int], int], end_tokens: Container[int], tokens: list[int]
) -> int:
    """Append the target's tokens to `tokens`, following `draft` as long as the target agrees with it.

    Returns how many draft tokens were accepted. The draft never influences the target's choices. `choose(i)`
    returns the target's token after the committed ones and draft[:i]. It is called in order i = 0, 1, …, and
    only while draft[:i] has been accepted. The last token is the recovered one (the target's own token at the
    first mismatch), or the bonus token after a fully accepted draft. No token follows an end token.

    `tokens` may hold tokens chosen before `choose` raised an error; verification continues after them.
    """
    for i in range(len(tokens), len(draft) + 1):
        token = choose(i)
        tokens.append(token)
        accepted = i < len(draft) and token == draft[i]
        if not accepted:
            return i
        if token in end_tokens:
            break
    return len(tokens)


@dataclass(slots=True)
class Verification:
    """The comparison of a step's draft with the target's tokens, which follow the first `start` tokens.

    Under a grammar, choosing a token may take longer than the step. Until all are chosen, `tokens` are the
    tokens that the sampler has accepted so far, and no other record has them. When all are chosen,
    tokens[:n_accepted] were in the draft.

    The event is made only while a device computes the next step, because pydantic takes time. rows: the
    logits of each token. is_covered: a token was rejected, and a draft of a back or of the inline drafter
    goes on after `tokens`.
    """

    drafts: Drafts
    start: int
    draft: DraftChain
    rows: NDArray[np.float32]  # the logits of each choice
    tokens: list[int] = field(default_factory=list)
    n_accepted: int = 0
    is_covered: bool = False
    probabilities: list[TokenProbabilities] = field(default_factory=list)

    @property
    def has_rejected(self) -> bool:
        """True if the target disagreed with the draft."""
        return self.n_accepted < len(self.draft)

    def end_draft(self) -> int:
        """Cut the draft to the tokens accepted so far; return its length."""
        n = len(self.tokens)
        self.draft, self.rows = self.draft[:n], self.rows[: n + 1]
        return n

    def event(self, n_right: Mapping[str, tuple[int, int]]) -> Committed:
        """Return the event of the step. n_right: see `Committed`."""
        return Committed(
            sequence=self.drafts.id,
            start=self.start,
            tokens=self.tokens,
            n_accepted=self.n_accepted,
            rejected=[each.token for each in self.draft[self.n_accepted :]],
            sources=[each.source for each in self.draft],
            n_right=dict(n_right),
            probabilities=self.probabilities,
        )


class EngineSequence:
    """The engine's record of a sequence. `tokens` only ever grows.

    Only `SlotManager` writes the record, except that the engine begins a `verification`. `context` is the
    part that the model sees: `tokens` itself until a shift discards some tokens. Each shift makes a new list.
    Without shifts, the sequence ends when its context has `n_ctx` tokens.

    `text` is `tokens` without the rows of images; drafts and samplers count positions in `text`. Without
    images it is the same list. images_end: the position after the last image row.
    """

    drafts: Drafts  # from `SpeculationManager.open` on

    def __init__(
        self,
        request: Submit,
        n_ctx: int,
        make_sampler: Callable[[Submit], Sampler],
        checkpoints: tuple[int, ...] = (),
    ) -> None:
        """checkpoints: lengths of the prompt at which a later request may branch off.

        The sampler is made when it is first needed: making it takes time and memory, and many sequences may
        wait.
        """
        self.id = request.sequence
        self.request = request
        self.tokens = list(request.tokens)
        self.context = self.tokens  # the part that the model sees; shorter after a shift
        self.text = list(request.text) if request.images else self.tokens
        self.images = request.images
        self.images_end = request.images[-1].end if request.images else 0
        self.n_prompt = request.n_prompt or len(request.tokens)
        self.n_ctx = n_ctx
        self.shift = None if request.n_keep is None else ContextShift(n_ctx, request.n_keep)
        self.checkpoints = checkpoints
        n, max_tokens = MAX_TEXT_TOKENS, request.max_tokens  # None: until the context is full
        self._n_max = n if max_tokens is None else min(n, self.n_prompt + max_tokens)
        self.number: int | None = None  # sequences are numbered as they first get a slot of this engine
        self.n_cached = request.n_cached  # tokens cached in its very first slot; None: it had no slot yet
        self.verification: Verification | None = None  # of the last step, until it is complete
        self._make_sampler = make_sampler
        self._sampler: Sampler | None = None  # made at its first use
        if self.is_context_full:
            self.shift_context()

    @property
    def n_prefill(self) -> int:
        """The number of tokens decoded as a prompt: the prompt, or the tokens left by the last
        context shift.
        """
        return self.n_prompt if self.shift is None or self.context is self.tokens else self.shift.n_left

    @property
    def is_context_full(self) -> bool:
        """True if the sequence can continue only with a context shift."""
        return self.shift is not None and len(self.context) >= self.n_ctx

    def shift_context(self) -> int:
        """Discard the oldest tokens of a full context; return the number of tokens kept at its beginning."""
        assert self.shift
        self.context = self.shift.context(self.tokens)
        self.checkpoints = tuple(n for n in self.checkpoints if n <= self.shift.n_keep)
        return self.shift.n_keep

    def append(self, tokens: Sequence[int]) -> None:
        self.tokens += tokens
        if self.context is not self.tokens:
            self.context += tokens
        if self.text is not self.tokens:
            self.text += tokens

    @property
    def sampler(self) -> Sampler:
        if self._sampler is None:
            self._sampler = self._make_sampler(self.request)
        return self._sampler

    def verify(self, end_tokens: Container[int]) -> Verification | Failed | None:
        """Return the completed `verification`, or the reason why the sequence cannot go on.

        None: a token under a grammar is not chosen yet. Does not append the tokens.
        """
        verification = self.verification
        assert verification
        draft = [each.token for each in verification.draft]
        try:
            choose = partial(self._choose, verification, self.sampler)
            verification.n_accepted = verify(draft, choose, end_tokens, verification.tokens)
        except PendingAnswerError:
            return None
        except RequestError as error:  # its grammar has become too complex
            return Failed(sequence=self.id, reason=str(error), param=error.param)
        except UnavailableError as error:  # grammars are unavailable for now
            return Failed(sequence=self.id, reason=str(error), may_recover=True)
        except MemoryError:  # not the sequence's fault: the next engine process continues it
            raise
        except Exception:
            log.exception("sequence %s cannot continue", self.id)
            reason = "sampling a token failed. Read the lead's log"
            return Failed(sequence=self.id, reason=reason, param=None)
        self.verification = None
        return verification

    def _choose(self, verification: Verification, sampler: Sampler, i: int) -> int:
        """Return the target's token after the first `i` tokens of the draft."""
        position, row = verification.start + i, verification.rows[i]
        token = sampler.choose(row, position)
        if (n_probs := self.request.n_probs) is not None:
            verification.probabilities.append(
                filtered_probabilities(sampler, row, position, token, n_probs)
                if self.request.filtered
                else model_probabilities(row, token, n_probs)
            )
        sampler.accept(token)
        return token

    def drop_verification(self) -> None:
        """Drop the verification under way, if any; its tokens will be decoded and chosen again."""
        if self.verification is not None:
            self.verification = None
            self.sampler.rewind(self.text)

    @property
    def n_generated(self) -> int:
        return len(self.tokens) - self.n_prompt

    @property
    def n_left(self) -> int:
        """The number of tokens until the sequence ends, or its context must be shifted."""
        return min(self.n_ctx - len(self.context), self._n_max - len(self.tokens))

    @property
    def is_complete(self) -> bool:
        is_context_full = self.shift is None and len(self.context) >= self.n_ctx
        return is_context_full or len(self.tokens) >= self._n_max

    @property
    def n_useful(self) -> int:
        """The maximum number of draft tokens that the next step can commit."""
        n, n_draft = self.n_left - 1, self.request.n_draft
        return n if n_draft is None else min(n, n_draft)

    def describe(self) -> dict[str, Any]:
        """Return a description without text, for the log of a failed check."""
        return {
            "sequence": self.id,
            "n_tokens": len(self.tokens),
            "n_context": len(self.context),
            "drafts": list(self.drafts.trees),
        }
