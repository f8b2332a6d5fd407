"""llama.cpp's grammars: which tokens may come next.

A grammar's text has been checked when it comes here (`lead.grammar`): llama.cpp's parser trusts its input.
"""

import time
from typing import Any, Self

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from shared.errors import GrammarTooSlowError
from shared.llama import library
from shared.llama.native_chain import NativeChain
from shared.llama.vocabulary import Vocabulary

_ROOT = b"root"
_MOST_SECONDS = 0.25
_MOST_SECONDS_PER_TOKEN = 50e-6
"""Of this thread's own time, for one question, and for each token that it is about. Ordinary grammars take
some hundredth of it. Where the ways to read a text multiply, each token takes several times as long."""


def can_parse(text: str) -> bool:
    """Whether llama.cpp's parser takes the grammar; one that names tokens needs a vocabulary, so never."""
    library.start()
    sampler = llama_cpp.llama_sampler_init_grammar(None, text.encode(), _ROOT)
    if not sampler:
        return False
    llama_cpp.llama_sampler_free(sampler)
    return True


class NativeGrammar:
    """A grammar and how far a text has come in it."""

    def __init__(self, text: str, vocabulary: Vocabulary) -> None:
        """Raises ValueError for what llama.cpp cannot parse."""
        library.start()
        sampler = llama_cpp.llama_sampler_init_grammar(vocabulary.native, text.encode(), _ROOT)
        if not sampler:
            raise ValueError("llama.cpp cannot parse the grammar")
        self._hold(sampler, vocabulary)

    def _hold(self, sampler: Any, vocabulary: Vocabulary) -> None:
        self._sampler = sampler
        self._chain = NativeChain([sampler])  # owns the sampler
        self._vocabulary = vocabulary  # the sampler has a pointer to it

    def allowed(self, ids: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        """Of each of `ids` whether it may come next; end tokens only where the text may end.

        Raises GrammarTooSlowError, as `accept` does.
        """
        began = time.thread_time()
        _, logits = self._chain.apply(ids, np.zeros(len(ids), np.float32), are_sorted=False)
        _check_time(began, len(ids))
        return np.equal(logits, 0)

    def accept(self, token: int) -> bool:
        """`token` comes next. False, and nothing is changed, where it may not: llama.cpp would abort."""
        if not self.allowed(np.array([token], np.int32))[0]:
            return False
        began = time.thread_time()
        self._chain.accept(token)
        _check_time(began, 1)
        return True

    def copy(self) -> Self:
        """Another at the same place in the text."""
        other = object.__new__(type(self))
        other._hold(llama_cpp.llama_sampler_clone(self._sampler), self._vocabulary)
        return other


def _check_time(began: float, n_tokens: int) -> None:
    if time.thread_time() - began > _MOST_SECONDS + n_tokens * _MOST_SECONDS_PER_TOKEN:
        raise GrammarTooSlowError("there are too many ways to read this text by the grammar", "grammar")
