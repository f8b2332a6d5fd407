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
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import round_trips, table, translation_cost
from bench.knowing_model import KnowingModel
from shared.errors import DuoError
from shared.llama.vocabulary import Vocabulary
from shared.translation.projection import Projection
from shared.translation.retention import n_followed
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
        exact=projection.share_exact,
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
    return n_followed(TranslatingModel(own, projection), tokens, 1), own.n_decodes


def main(arguments: Sequence[str]) -> None:
    """Print a table, then one line of JSON."""
    parser = argparse.ArgumentParser(prog="bench translation", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="GGUF files")
    parser.add_argument(
        "--round-trips", action="store_true", help="only whether texts stay the same, for many files"
    )
    parser.add_argument(
        "--cost", action="store_true", help="milliseconds for a token: DRAFT TARGET, vocabularies"
    )
    parser.add_argument("--text", type=Path, help="a text to use in place of the built-in one")
    options = parser.parse_args(arguments)
    text = options.text.read_bytes() if options.text else _TEXT.encode()
    vocabularies = []
    for path in options.files:
        try:
            vocabularies.append(Vocabulary.load(path))
        except DuoError as error:
            print(f"left out: {error}", file=sys.stderr)
    if options.cost:
        draft, target = vocabularies
        print(json.dumps(translation_cost.run(draft.info.path, target)))
        return
    if options.round_trips:
        sys.exit(round_trips.run(vocabularies, text))
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
