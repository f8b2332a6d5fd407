"""Grammars by llguidance: which tokens may come next.

A grammar is written in llguidance's variant of Lark (`lead.grammar` produces it). The limits bound the memory
and time of every call. A matcher that reaches a limit fails for good, and so does its sequence.
"""

import re
import weakref
from collections.abc import Sequence
from typing import Self

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray

from shared.errors import RequestError
from shared.llama.vocabulary import Vocabulary

_LIMITS = LLParserLimits(
    max_grammar_size=200_000,
    initial_lexer_fuel=500_000,  # about 10 ms to compile all regular expressions
    step_lexer_fuel=200_000,  # about 15 ms for a mask
    step_max_items=50_000,  # about 3 ms for a mask
    max_lexer_states=50_000,  # 2 KB each
    verbose_errors=False,
)

_STUCK = {"NoExtension", "NoExtensionBias"}
_PLACE = re.compile(r"^at \d+\(\d+\): ")
_QUOTED = re.compile(r"^ *\d* \| |<non-verbose/>")
_LONGEST_MESSAGE = 300
"""The maximum length of an error, because llguidance quotes whole regular expressions."""


class _Tokens:
    """A vocabulary in the form that llguidance's TokenizerWrapper expects."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.tokens = vocabulary.all_pieces()
        self.special_token_ids = sorted(vocabulary.special_tokens.values())
        self.eos_token_id = min(vocabulary.end_tokens, default=0)
        self.bos_token_id = vocabulary.bos
        self._vocabulary = vocabulary

    def __call__(self, text: str) -> list[int]:
        return self._vocabulary.tokenize(text, add_special=False, parse_special=False)


_INDEXES = weakref.WeakKeyDictionary[Vocabulary, LLTokenizer]()


def prepare(vocabulary: Vocabulary) -> LLTokenizer:
    """Return the vocabulary, indexed for grammars. The first call takes about 1 s for 150,000 tokens."""
    if vocabulary not in _INDEXES:
        # llguidance needs an end token. For a model without one, grammars end with token 0.
        ends = sorted(vocabulary.end_tokens) or [0]
        tokens = _Tokens(vocabulary)
        _INDEXES[vocabulary] = LLTokenizer(TokenizerWrapper(tokens), eos_token=ends)
        tokens.tokens = []  # the index has them
    return _INDEXES[vocabulary]


def is_prepared(vocabulary: Vocabulary) -> bool:
    """Return whether `prepare` returns at once."""
    return vocabulary in _INDEXES


def some_tokens(text: str, vocabulary: Vocabulary) -> list[int]:
    """Return tokens that together have the bytes of `text`; grammars do not depend on how bytes are split."""
    return list(prepare(vocabulary).greedy_tokenize(text))


class GrammarMatcher:
    """The state of a grammar at some point of a text."""

    def __init__(self, text: str, vocabulary: Vocabulary) -> None:
        """Compile the grammar; raises ValueError with llguidance's message if that fails."""
        self._end_tokens = vocabulary.end_tokens
        self._n_tokens = vocabulary.n_tokens
        self._matcher = LLMatcher(prepare(vocabulary), text, limits=_LIMITS, log_level=0)
        if self._matcher.is_error():
            raise ValueError(_plain(self._matcher.get_error()))

    def allows(self, token: int) -> bool:
        """Return whether `token` may come next; an end token only where the text may end.

        Raises RequestError at a limit, as all methods do.
        """
        if token in self._end_tokens:
            allows = self._matcher.is_accepting()
        else:
            allows = self._matcher.validate_tokens([token]) == 1
        self._check()
        return allows

    def allowed(self) -> NDArray[np.int32]:
        """Return the ids of all tokens that may come next, ascending."""
        mask = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        bits = np.unpackbits(mask, bitorder="little", count=self._n_tokens)
        bits[list(self._end_tokens)] = self._matcher.is_accepting()
        return bits.nonzero()[0].astype(np.int32)

    @property
    def may_end(self) -> bool:
        """True if the text is complete under the grammar."""
        return bool(self._matcher.is_accepting())

    def accept(self, token: int) -> bool:
        """Advance by `token`. Returns False, without a change, if it is not allowed or ends the text."""
        if token in self._end_tokens:
            return False
        accepted = self._matcher.try_consume_tokens([token]) == 1
        self._check()
        return accepted

    def rollback(self, n: int) -> None:
        """Remove the last `n` accepted tokens."""
        if n:
            self._matcher.rollback(n)
            self._check()

    def copy(self) -> Self:
        """Return an independent copy, at the same point."""
        other = object.__new__(type(self))
        other._end_tokens, other._n_tokens = self._end_tokens, self._n_tokens
        other._matcher = self._matcher.deep_copy()
        return other

    def _check(self) -> None:
        if self._matcher.is_error():
            reason = _plain(self._matcher.get_error())
            reason = "nothing may come next" if reason in _STUCK else reason
            raise RequestError(f"the grammar cannot be followed any further: {reason}", "grammar")


class FollowedGrammar:
    """The state of a grammar, which may be followed by free text: a `constrained.Constraint`."""

    def __init__(self, matcher: GrammarMatcher | None, n_beyond: int = 0) -> None:
        """matcher: follows the grammar; None: every token may come next. n_beyond: the number of accepted
        tokens, counted from the first token that the grammar refuses.
        """
        self._matcher = matcher
        self.n_beyond = n_beyond
        self.is_ready = True

    @property
    def may_end(self) -> bool:
        """True if the text may end here."""
        return self._matcher is None or self._matcher.may_end

    def allows(self, tokens: Sequence[int]) -> list[bool]:
        if self._matcher is None or self.n_beyond:
            return [True] * len(tokens)
        return [self._matcher.allows(token) for token in tokens]

    def allowed(self) -> NDArray[np.int32]:
        assert self._matcher, "every token may come next"
        return self._matcher.allowed()

    def accept(self, token: int) -> None:
        if self._matcher is None or self.n_beyond or not self._matcher.accept(token):
            self.n_beyond += 1

    def rollback(self, n: int) -> None:
        n_beyond = min(n, self.n_beyond)
        self.n_beyond -= n_beyond
        if self._matcher:
            self._matcher.rollback(n - n_beyond)

    def copy(self) -> Self:
        return type(self)(self._matcher and self._matcher.copy(), self.n_beyond)


def _plain(message: str) -> str:
    """Return the message of llguidance, without lines of a text that clients do not see."""
    lines = [line for line in _PLACE.sub("", message).splitlines() if not _QUOTED.match(line)]
    return "\n".join(lines).removeprefix("failed to compile JSON schema: ")[:_LONGEST_MESSAGE].rstrip()
