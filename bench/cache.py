"""`python -m bench cache`: what the KV cache is worth, by length of text.

Tokens per second of an answer to a request of `length` tokens, of which the last ones are new:

    cached     the rest is in the cache, from the request before
    no reuse   each request reads its whole text, then generates with the cache
    no cache   the whole text is read again for every token

once for one text, and once for eight at a time, whose lengths are 1/8, 2/8, … 8/8 of it.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import table
from bench.options import listed
from shared import cpus
from shared.llama.model import Model
from shared.llama.span import Span
from shared.models.builtin import builtin_target, grown_target
from shared.models.model_file import loadable
from shared.settings.model_options import ModelOptions

_N_TEXTS = 8
_COLUMNS = {
    "n_texts": ("texts", "d"),
    "length": ("tokens of the longest", "d"),
    "cached": ("cached, tokens/s", ".1f"),
    "no_reuse": ("no reuse", ".1f"),
    "no_cache": ("no cache", ".2f"),
    "over_no_reuse": ("cached / no reuse", ".1f"),
    "over_no_cache": ("cached / no cache", ".0f"),
}


@dataclass(frozen=True, slots=True)
class CacheBench:
    """One model, whose slots hold one text each.

    n_tokens: of an answer to each text. n_new: tokens at the end of a text that no earlier request had.
    n_reread: tokens to generate without a cache, each of which takes as long as a whole text.
    """

    model: Model
    n_tokens: int
    n_new: int
    n_reread: int = 1

    def cached(self, lengths: Sequence[int]) -> float:
        """Tokens per second, over all texts."""
        self._clear(lengths)
        for slot, length in enumerate(lengths):
            self._read(slot, 0, length - self.n_new)
        begun = time.perf_counter()
        for slot, length in enumerate(lengths):
            self._read(slot, length - self.n_new, length)
        self._generate(lengths)
        return self._rate(lengths, self.n_tokens, begun)

    def no_reuse(self, lengths: Sequence[int]) -> float:
        """Tokens per second, over all texts."""
        self._clear(lengths)
        begun = time.perf_counter()
        for slot, length in enumerate(lengths):
            self._read(slot, 0, length)
        self._generate(lengths)
        return self._rate(lengths, self.n_tokens, begun)

    def no_cache(self, lengths: Sequence[int]) -> float:
        """Tokens per second, over all texts."""
        begun = time.perf_counter()
        for i in range(self.n_reread):
            self._clear(lengths)
            for slot, length in enumerate(lengths):
                self._read(slot, 0, length + i)
        return self._rate(lengths, self.n_reread, begun)

    def _clear(self, lengths: Sequence[int]) -> None:
        for slot in range(len(lengths)):
            self.model.trim(slot, 0)

    def _read(self, slot: int, start: int, end: int) -> None:
        """The tokens `[start, end)` of a text, which gives the first token of its answer."""
        step = self.model.n_batch
        for at in range(start, end, step):
            stop = min(at + step, end)
            tokens = [token % self.model.n_vocab for token in range(at, stop)]
            self.model.decode([Span(slot, at, tokens, int(stop == end))])

    def _generate(self, lengths: Sequence[int]) -> None:
        """The other tokens of the answers, all texts in one step."""
        for i in range(self.n_tokens - 1):
            self.model.decode([Span(slot, length + i, [1], 1) for slot, length in enumerate(lengths)])

    def _rate(self, lengths: Sequence[int], n_tokens: int, begun: float) -> float:
        return len(lengths) * n_tokens / (time.perf_counter() - begun)


def main(arguments: Sequence[str]) -> None:
    """Print a table, then a line of JSON."""
    options = _parse(arguments)
    cores = cpus.parse_cpus(options.cpus) if options.cpus else cpus.usable()
    cpus.pin(cores)
    path = loadable(options.model) if options.model else _default_model(quick=options.quick)
    rows = list(_rows(path, options, len(cores)))
    answers = f"answers of {options.tokens} tokens to {options.new} new ones"
    table.show(f"{path.stem}, {len(cores)} threads, {answers}", rows, _COLUMNS)
    print(json.dumps({"part": "cache", "model": path.stem, "n_threads": len(cores), "rows": rows}))


def _rows(path: Path, options: argparse.Namespace, n_threads: int) -> Iterator[dict[str, Any]]:
    for n_texts in (1, _N_TEXTS):
        for length in options.lengths:
            lengths = [max(options.new + 1, length * (i + 1) // n_texts) for i in range(n_texts)]
            n_cells = sum(lengths) + n_texts * options.tokens
            model = Model(path, ModelOptions(ctx_size=n_cells, parallel=n_texts, threads=n_threads))
            yield _row(CacheBench(model, options.tokens, options.new), lengths, options.repeats)
            model.close()


def _row(bench: CacheBench, lengths: Sequence[int], n_repeats: int) -> dict[str, Any]:
    """Medians; the ways are measured in turns."""
    ways = {"cached": bench.cached, "no_reuse": bench.no_reuse, "no_cache": bench.no_cache}
    bench.cached(lengths)  # reads the weights
    measured = [{name: way(lengths) for name, way in ways.items()} for _ in range(n_repeats)]
    rates = {name: statistics.median(each[name] for each in measured) for name in ways}
    print(f"{len(lengths)} texts, {lengths[-1]} tokens: {rates}", file=sys.stderr)
    return {
        "n_texts": len(lengths),
        "length": lengths[-1],
        **rates,
        "over_no_reuse": rates["cached"] / rates["no_reuse"],
        "over_no_cache": rates["cached"] / rates["no_cache"],
    }


def _default_model(*, quick: bool) -> Path:
    return builtin_target() if quick else grown_target()


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench cache", description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, help="as for lead (default: the demo's target)")
    parser.add_argument("--lengths", type=listed(int), default=[128, 512, 1024, 2048], help="of the texts")
    parser.add_argument("--tokens", type=int, default=32, help="of an answer")
    parser.add_argument("--new", type=int, default=16, help="new tokens at the end of a text")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cpus", help="cores, as for lead (default: all)")
    parser.add_argument("--quick", action="store_true", help="one repeat with the shipped target")
    options = parser.parse_args(arguments)
    if options.quick:
        options.repeats = 1
    return options
