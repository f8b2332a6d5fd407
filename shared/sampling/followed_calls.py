"""Grammars that apply only to tool calls in an answer: two kinds of `constrained.Constraint`.

Most of an answer is free, and often all of it. `FreeUntilCall` needs no other process until a call begins;
for each token it only searches the end of the text. From then on `FollowedCalls`, in another process, tracks
where each call ends.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from shared.errors import RequestError
from shared.llama.vocabulary import Vocabulary
from shared.sampling.answer_text import AnswerText, BegunCall
from shared.sampling.call_grammars import CallGrammars
from shared.sampling.constrained import Constraint
from shared.sampling.grammar import FollowedGrammar, GrammarMatcher, some_tokens
from shared.sampling.sampler import every_token


class FreeUntilCall:
    """Allows every token until a call begins, then behaves as another constraint.

    If that constraint fails, the rest of the answer is free, because a model can also write calls without a
    constraint.
    """

    def __init__(
        self, calls: CallGrammars, vocabulary: Vocabulary, follow: Callable[[CallGrammars], Constraint]
    ) -> None:
        self._calls, self._vocabulary, self._follow = calls, vocabulary, follow
        self._text = AnswerText(calls)
        self._inner: Constraint | None = None  # constrains the tokens after this text
        self._n_inner = 0  # the number of these tokens

    @property
    def is_ready(self) -> bool:
        return self._inner is None or self._inner.is_ready

    def allows(self, tokens: Sequence[int]) -> list[bool]:
        if self._inner is None and not any(map(self._begins, tokens)):
            return [True] * len(tokens)
        try:
            return self._woken().allows(tokens)
        except RequestError:
            self._inner = FollowedGrammar(None)
            return [True] * len(tokens)

    def allowed(self) -> NDArray[np.int32]:
        try:
            return self._woken().allowed()
        except RequestError:
            self._inner = FollowedGrammar(None)
            return every_token(self._vocabulary.n_tokens)

    def accept(self, token: int) -> None:
        if self._inner is None and self._begins(token):
            self._woken()
        if self._inner is None:
            self._text.append(self._piece(token))
        else:
            self._inner.accept(token)
            self._n_inner += 1

    def rollback(self, n: int) -> None:
        if self._inner is not None and n <= self._n_inner:
            self._inner.rollback(n)
            self._n_inner -= n
            return
        self._text.keep(len(self._text) + self._n_inner - n)
        self._inner, self._n_inner = None, 0

    def copy(self) -> Self:
        other = object.__new__(type(self))
        other.__dict__ = self.__dict__ | {"_text": self._text.copy()}
        other._inner = self._inner and self._inner.copy()
        return other

    def _woken(self) -> Constraint:
        if self._inner is None:
            self._inner = self._follow(replace(self._calls, said=bytes(self._text)))
        return self._inner

    def _begins(self, token: int) -> bool:
        return self._text.begins_with(self._piece(token)) is not None

    def _piece(self, token: int) -> bytes:
        return self._vocabulary.piece(token, special=True)


@dataclass(slots=True)
class _Call:
    """A call in the answer. at: the number of tokens before it. end: the byte offset of its end, if it has
    ended.
    """

    at: int
    grammar: FollowedGrammar
    end: int = 0

    @property
    def is_over(self) -> bool:
        return self.grammar.n_beyond > 0


class FollowedCalls:
    """Constrains the arguments of each call; the text between calls is free."""

    def __init__(self, calls: CallGrammars, vocabulary: Vocabulary) -> None:
        self._grammars, self._vocabulary = calls.grammars, vocabulary
        self._text = AnswerText(calls)
        self._begun: list[_Call] = []
        self._compiled: dict[str, FollowedGrammar | None] = {}
        self._refused = 0  # the last refused token
        self.is_ready = True

    def allows(self, tokens: Sequence[int]) -> list[bool]:
        allows = [self._allows(token) for token in tokens]
        self._refused = next((token for token, each in zip(tokens, allows, strict=True) if not each), 0)
        return allows

    def allowed(self) -> NDArray[np.int32]:
        """Return the ids of all allowed tokens; called after a token was refused."""
        if call := self._open():
            return call.grammar.allowed()
        # The refused token begins a call and continues it wrongly. Allowed are parts of its beginning, and
        # tokens that continue the beginning rightly.
        piece, pieces = self._piece(self._refused), self._vocabulary.all_pieces()
        begun = self._beginning(self._refused)
        beginning = piece.removesuffix(begun.rest) if begun else piece
        return np.array(
            [
                token
                for token, each in enumerate(pieces)
                if (each and beginning.startswith(each))
                or (each.startswith(beginning) and self._allows(token))
            ],
            np.int32,
        )

    def accept(self, token: int) -> None:
        call = self._open()
        if call and not call.grammar.allows([token])[0]:
            call.end = self._text.n_bytes + (self._n_bytes_of(call, token) or 0)
        if not call and (begun := self._begin(token)):
            self._begun.append(_Call(len(self._text), begun))
        elif self._begun:
            self._begun[-1].grammar.accept(token)
        self._text.append(self._piece(token))

    def rollback(self, n: int) -> None:
        n_told, n_kept = len(self._text), len(self._text) - n
        while self._begun and self._begun[-1].at >= n_kept:
            n_told = self._begun.pop().at
        if self._begun:
            self._begun[-1].grammar.rollback(n_told - n_kept)
        self._text.keep(n_kept)

    def copy(self) -> Self:
        other = object.__new__(type(self))
        begun = [replace(call, grammar=call.grammar.copy()) for call in self._begun]
        other.__dict__ = self.__dict__ | {"_text": self._text.copy(), "_begun": begun}
        return other

    def _allows(self, token: int) -> bool:
        if call := self._open():
            return call.grammar.allows([token])[0] or self._n_bytes_of(call, token) is not None
        begun = self._begin(token)
        return begun is None or not begun.n_beyond

    def _open(self) -> _Call | None:
        """Return the call that has begun and is not over."""
        return self._begun[-1] if self._begun and not self._begun[-1].is_over else None

    def _n_bytes_of(self, call: _Call, token: int) -> int | None:
        """Return how many bytes of a refused token belong to the call; None if the call does not end within
        the token.
        """
        grammar, n = call.grammar.copy(), 0
        for character in ["", *self._piece(token).decode(errors="replace")]:
            for each in some_tokens(character, self._vocabulary):
                grammar.accept(each)
            n += len(character.encode())
            if grammar.n_beyond:
                return None
            if grammar.may_end:
                return n
        return None

    def _beginning(self, token: int) -> BegunCall | None:
        """Return the call that this token begins, if any."""
        return self._text.begins_with(self._piece(token), self._begun[-1].end if self._begun else None)

    def _begin(self, token: int) -> FollowedGrammar | None:
        """Return the grammar of the call that this token begins, after the token; None: no call begins."""
        begun = self._beginning(token)
        if begun is None:
            return None
        if begun.name not in self._compiled:
            self._compiled[begun.name] = self._compile(self._grammars[begun.name])
        if (compiled := self._compiled[begun.name]) is None:
            return None
        grammar = compiled.copy()
        for each in some_tokens(begun.rest.decode(errors="replace"), self._vocabulary):
            grammar.accept(each)
        return grammar

    def _compile(self, grammar: str) -> FollowedGrammar | None:
        try:
            return FollowedGrammar(GrammarMatcher(grammar, self._vocabulary))
        except ValueError:  # a model can also write calls without it
            return None

    def _piece(self, token: int) -> bytes:
        return self._vocabulary.piece(token, special=True)
