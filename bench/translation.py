"""`python -m bench translation FILES`: what is lost when a draft model speaks another vocabulary.

For each pair of the GGUF files, which may hold vocabularies alone: whether a text is the same after a round
trip through both, how many tokens have an exact counterpart, and how often a draft model that knows the text
drafts the target's next token. What is missing to 100 % is lost by the translation alone. Exit status 1 if a
round trip changes the text.
"""

import argparse
import itertools
import json
import statistics
import sys
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import table
from shared.cache_edits import SlotMemory
from shared.errors import DuoError
from shared.llama.memory_traits import PLAIN
from shared.llama.span import Span
from shared.llama.vocabulary import Vocabulary
from shared.translation.byte_vocabulary import ByteVocabulary
from shared.translation.projection import Projection
from shared.translation.translating_model import TranslatingModel
from shared.translation.vocabulary_pair import vocabulary_pair

_TEXT = (
    "Once upon a time, a fox named Zorvi had a red umbrella; it wasn't raining, though.\n\n"
    "def add(first: int, second: int = 0) -> int:\n    '''The sum.'''\n\treturn first + second  # 2 + 40\n\n"
    '{"name": "naïve café", "price": 1234.50, "tags": ["a", "b_c", null]}\r\n'
    "人工智能是计算机科学的一个分支。東京は日本の首都です。Привет, мир! 😀🎉👩‍👩‍👧 x²≈∑\n"
    "  * indented   twice    and\t\ttabs, 3.14159, 2026-11-22T05:32:01Z, https://example.org/a?b=c&d=%20\n"
)


_COLUMNS = {
    "draft": ("draft", ""),
    "target": ("target", ""),
    "same_text": ("same text", ""),
    "exact": ("exact tokens", ".0%"),
    "right": ("right", ".1%"),
    "passes_per_token": ("passes a token", ".2f"),
    "token_ms": ("ms a token", ".2f"),
    "pair_seconds": ("s at start", ".1f"),
    "refused": ("refused", ""),
}


class KnowingModel(SlotMemory):
    """Expects a text in its own tokens: the next one of the tokenizer, from wherever it is."""

    def __init__(self, vocabulary: ByteVocabulary, text: bytes) -> None:
        self.n_batch, self.n_ctx_slot, self.n_slots, self.traits = 512, 1 << 20, 1, PLAIN
        self.n_decodes = 0
        self._vocabulary = vocabulary
        self._text = text
        self._ends = [0]  # of the tokens in memory
        self._expected = dict[int, int]()
        offset = 0
        for token in vocabulary.encode(text):
            self._expected[offset] = token
            offset += len(vocabulary.pieces[token])
        self._boundaries = [*self._expected, len(text)]

    def decode(self, spans: Sequence[Span]) -> list[NDArray[np.float32]]:
        """Logits that leave no doubt."""
        self.n_decodes += 1
        (span,) = spans
        for token in span.tokens:
            self._ends.append(self._ends[-1] + len(self._vocabulary.pieces[token]))
        rows = np.full((span.n_logits, len(self._vocabulary)), -30.0, np.float32)
        for row, end in zip(rows, self._ends[len(self._ends) - span.n_logits :], strict=True):
            if end < len(self._text):
                row[self._token_at(end)] = 0.0
        return [rows]

    def trim(self, slot: int, n_keep: int) -> None:
        """Keep the first tokens; `slot` is 0."""
        assert slot == 0
        del self._ends[n_keep + 1 :]

    def copy(self, source_slot: int, slot: int, n_keep: int) -> None:
        """There is one slot."""
        raise AssertionError((source_slot, slot, n_keep))

    def _token_at(self, offset: int) -> int:
        if offset in self._expected:
            return self._expected[offset]
        end = self._boundaries[bisect_right(self._boundaries, offset)]
        return self._vocabulary.encode(self._text[offset:end])[0]


@dataclass(frozen=True, slots=True)
class PairResult:
    """Figures of one pair; passes are of the draft model. `refused` says why there are none."""

    draft: str
    target: str
    refused: str | None = None
    same_text: bool | None = None
    exact: float | None = None
    right: float | None = None
    passes_per_token: float | None = None
    pair_seconds: float | None = None
    token_ms: float | None = None


def measure(draft: Vocabulary, target: Vocabulary, text: bytes) -> PairResult:
    """One pair; the draft model knows `text`."""
    names = _name(draft), _name(target)
    began = time.perf_counter()
    try:
        projection = vocabulary_pair(draft, target)
    except DuoError as error:
        return PairResult(*names, refused=str(error))
    pair_seconds = time.perf_counter() - began
    tokens = projection.target.encode(text)
    began = time.perf_counter()
    n_right, n_passes = _follow(projection, tokens, text)
    n = len(tokens) - 1
    return PairResult(
        *names,
        same_text=_round_trip(projection, text) == text,
        exact=projection.n_exact / len(projection.draft),
        right=n_right / n,
        passes_per_token=n_passes / n,
        pair_seconds=pair_seconds,
        token_ms=1000 * (time.perf_counter() - began) / n,
    )


def _name(vocabulary: Vocabulary) -> str:
    return vocabulary.info.path.stem.removeprefix("ggml-vocab-")


def _round_trip(projection: Projection, text: bytes) -> bytes:
    for vocabulary in (projection.target, projection.draft):
        text = b"".join(vocabulary.pieces[token] for token in vocabulary.encode(text))
    return text


def _follow(projection: Projection, tokens: Sequence[int], text: bytes) -> tuple[int, int]:
    """How many of `tokens` but the first are drafted rightly, each by itself, and the passes for that."""
    own = KnowingModel(projection.draft, text)
    model = TranslatingModel(own, projection)
    n_right = 0
    for position, (token, following) in enumerate(itertools.pairwise(tokens)):
        (rows,) = model.decode([Span(0, position, [token], 1)])
        logits = rows[0]
        while better := model.look_ahead({0: int(logits.argmax())}):
            logits = better[0]
        n_right += int(logits.argmax()) == following
    return n_right, own.n_decodes


def main(arguments: Sequence[str]) -> None:
    """Print a table, then one line of JSON."""
    parser = argparse.ArgumentParser(prog="bench translation", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="GGUF files")
    parser.add_argument("--text", type=Path, help="a text to use in place of the built-in one")
    options = parser.parse_args(arguments)
    text = options.text.read_bytes() if options.text else _TEXT.encode()
    vocabularies = []
    for path in options.files:
        try:
            vocabularies.append(Vocabulary.load(path))
        except DuoError as error:
            print(f"left out: {error}", file=sys.stderr)
    results = [measure(draft, target, text) for draft, target in itertools.permutations(vocabularies, 2)]
    table.show("translation", [asdict(result) for result in results], _COLUMNS)
    print(json.dumps(_summary(results)))
    sys.exit(any(result.same_text is False for result in results))


def _summary(results: Sequence[PairResult]) -> dict[str, Any]:
    usable = [asdict(result) for result in results if result.refused is None]

    def values(field: str) -> list[float]:
        return [float(result[field]) for result in usable]

    return {
        "pairs": len(results),
        "refused": len(results) - len(usable),
        "changed": sum(not result["same_text"] for result in usable),
        "right_min": min(values("right"), default=None),
        "right_median": statistics.median(values("right")) if usable else None,
        "passes_per_token_max": max(values("passes_per_token"), default=None),
        "token_ms_max": max(values("token_ms"), default=None),
        "pair_seconds_max": max(values("pair_seconds"), default=None),
    }
