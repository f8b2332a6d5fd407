"""What constrained decoding costs: compiling a grammar, each choice, tokens/s at the lead and at a back.

Three ways of choosing: `agreeing`, where the model's first choice is in the grammar, `refused`, where it
practically never is (random logits), and `drafting`, a back's ranking of refused choices that takes back
half of what it drafted. With random weights every choice is a refused one: tokens/s is the worst case.
"""

import argparse
import json
import random
import string
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.table import show
from lead.grammar import check_schema, gbnf_to_lark, json_rule, lark_grammar
from lead.settings.limits import RequestLimits
from shared.errors import RequestError
from shared.llama.model import Model
from shared.llama.span import Span
from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import builtin_target
from shared.sampling.factory import make_sampler
from shared.sampling.grammar import prepare
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Sampler
from shared.settings.model_options import ModelOptions

Logits = NDArray[np.float32]

_BOUNDS = RequestLimits(max_grammar_bytes=1 << 20)
_CONTEXT = 512
_DRAFT = 8
"""Tokens that a back drafts before half of them turn out wrong."""
_BOOST = 50.0
"""Added to the logit that an agreeing model prefers."""

_PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "married": {"type": "boolean"}},
    "required": ["name", "age", "married"],
    "additionalProperties": False,
}
_ADDRESS = {
    "type": "object",
    "properties": {"street": {"type": "string", "maxLength": 40}, "code": {"pattern": "^[0-9]{5}$"}},
    "required": ["street", "code"],
    "additionalProperties": False,
}
_GBNF = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array  ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""
"""llama.cpp's grammars/json.gbnf, in fewer lines."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Times in microseconds per token; `slowest` is the worst single choice of all ways."""

    vocabulary: int
    grammar: str
    sampling: str
    compile_ms: float
    agreeing_us: float | None = None
    refused_us: float | None = None
    drafting_us: float | None = None
    slowest_us: float | None = None
    free: float | None = None
    lead: float | None = None
    back: float | None = None
    error: str | None = None


_COLUMNS = {
    "vocabulary": ("vocabulary", "d"),
    "grammar": ("grammar", ""),
    "sampling": ("sampling", ""),
    "compile_ms": ("compile ms", ".1f"),
    "agreeing_us": ("agreeing us", ".0f"),
    "refused_us": ("refused us", ".0f"),
    "drafting_us": ("drafting us", ".0f"),
    "slowest_us": ("slowest us", ".0f"),
    "free": ("free tokens/s", ".0f"),
    "lead": ("lead tokens/s", ".0f"),
    "back": ("back tokens/s", ".0f"),
    "error": ("error", ".60"),
}


def main(arguments: Sequence[str]) -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(prog="bench constrained", description=__doc__)
    parser.add_argument(
        "--model", type=Path, nargs="*", default=[builtin_target()], help="GGUF files, one vocabulary each"
    )
    parser.add_argument("--grammar", nargs="*", default=list(grammars()), choices=list(grammars()))
    parser.add_argument("--tokens", type=int, default=200, help="choices per measurement")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    costs = [
        cost
        for path in given.model
        for cost in measure(path, {name: grammars()[name] for name in given.grammar}, given.tokens)
    ]
    rows = [asdict(cost) for cost in costs]
    if given.json:
        print(json.dumps(rows))
    else:
        show("Constrained decoding", rows, _COLUMNS)


def grammars() -> dict[str, Any]:
    """JSON schemas, and one grammar in GBNF."""
    properties: dict[str, Any] = {**_PERSON["properties"], "home": _ADDRESS}
    people = {
        "type": "array",
        "items": {**_PERSON, "properties": properties},
    }
    words = random.Random(1)  # noqa: S311 - the same words each time
    enum = ["".join(words.choices(string.ascii_lowercase, k=8)) for _ in range(5000)]
    return {
        "flat": _PERSON,
        "nested": _object(people=people),
        "enum of 5,000": _object(word={"enum": enum}),
        "recursive": _object(value={"type": "number"}, children={"type": "array", "items": {"$ref": "#"}}),
        "GBNF": _GBNF,
    }


def measure(path: Path, cases: dict[str, Any], n_tokens: int) -> Iterator[Cost]:
    """Each grammar, greedy and with the default filters."""
    model = Model(path, ModelOptions(ctx_size=_CONTEXT, parallel=1, batch_size=64, threads=1))
    for name, case in cases.items():
        for temperature in (0.0, 0.8):
            yield _measure(model, name, case, SamplingParameters(seed=1, temperature=temperature), n_tokens)


def _measure(model: Model, name: str, case: object, free: SamplingParameters, n_tokens: int) -> Cost:
    vocabulary, sampling = model.vocabulary, "greedy" if free.is_greedy else "default"
    prepare(vocabulary)
    begun = time.perf_counter()
    try:
        parameters = free.model_copy(update={"grammar": grammar_text(case, vocabulary)})
        first = make_sampler(parameters, vocabulary, [])
        compile_ms = (time.perf_counter() - begun) * 1e3
        bench = _Bench(vocabulary, parameters, first, n_tokens)
        refused = bench.refused()
        agreeing = bench.agreeing()
        drafting = bench.drafting()
        return Cost(
            vocabulary.n_tokens,
            name,
            sampling,
            compile_ms,
            _median(agreeing),
            _median(refused),
            _median(drafting),
            max(agreeing + refused + drafting) * 1e6,
            _rate(model, make_sampler(free, vocabulary, []), bench, Sampler.choose),
            _rate(model, make_sampler(parameters, vocabulary, [], first), bench, Sampler.choose),
            _rate(model, make_sampler(parameters, vocabulary, [], first), bench, _first_of_rank),
        )
    except (RequestError, ValueError) as error:
        return Cost(
            vocabulary.n_tokens, name, sampling, (time.perf_counter() - begun) * 1e3, error=str(error)
        )


def grammar_text(case: object, vocabulary: Vocabulary) -> str:
    """What a request carries after its schema or grammar was checked."""
    if isinstance(case, str):
        return gbnf_to_lark(case, vocabulary.special_tokens.get, _BOUNDS)
    return lark_grammar([json_rule("start", check_schema(case, _BOUNDS))])


class _Bench:
    """Times choices over made-up logits; a text that ends begins anew."""

    def __init__(
        self, vocabulary: Vocabulary, parameters: SamplingParameters, first: Sampler, n_tokens: int
    ) -> None:
        self._vocabulary, self._parameters, self._first, self._n_tokens = (
            vocabulary,
            parameters,
            first,
            n_tokens,
        )
        self._document: list[int] = []
        noise = np.random.default_rng(1).standard_normal(vocabulary.n_tokens + n_tokens)
        self._noise = noise.astype(np.float32)

    def sampler(self) -> Sampler:
        return make_sampler(self._parameters, self._vocabulary, [], self._first)

    def ends(self, token: int) -> bool:
        return token in self._vocabulary.end_tokens

    def refused(self) -> list[float]:
        def choose(sampler: Sampler, position: int) -> int:
            token = sampler.choose(self._logits(position), position)
            sampler.accept(token)
            return token

        return self._time(choose, self._document)

    def agreeing(self) -> list[float]:
        def choose(sampler: Sampler, position: int) -> int:
            logits = self._logits(position)
            logits[self._document[position]] += _BOOST
            token = sampler.choose(logits, position)
            sampler.accept(token)
            return token

        return self._time(choose, [])

    def drafting(self) -> list[float]:
        text: list[int] = []

        def choose(sampler: Sampler, position: int) -> int:
            token = sampler.rank(self._logits(position), position, 3)[0].token
            sampler.accept(token)
            text.append(token)
            if len(text) % _DRAFT == 0:
                del text[-_DRAFT // 2 :]
                sampler.rewind(text)
            if self.ends(token):
                text.clear()
            return token

        return self._time(choose, [])

    def _time(self, choose: Callable[[Sampler, int], int], tokens: list[int]) -> list[float]:
        sampler, seconds = self.sampler(), []
        for position in range(self._n_tokens):
            begun = time.perf_counter()
            token = choose(sampler, position)
            seconds.append(time.perf_counter() - begun)
            tokens.append(token)
            if self.ends(token):
                sampler = self.sampler()
        return seconds

    def _logits(self, position: int) -> Logits:
        return self._noise[position : position + self._vocabulary.n_tokens].copy()


def _rate(
    model: Model, sampler: Sampler, bench: _Bench, choose: Callable[[Sampler, Logits, int], int]
) -> float:
    """Tokens/s of decoding one at a time; what ends begins anew."""
    model.trim(0, 0)
    token, begun, n = 1, time.perf_counter(), _CONTEXT // 4
    for position in range(n):
        rows = model.decode([Span(0, position, [token], 1)])
        token = choose(sampler, rows[0][0], position)
        sampler.accept(token)
        if bench.ends(token):
            sampler.rewind([])
    return n / (time.perf_counter() - begun)


def _first_of_rank(sampler: Sampler, logits: Logits, position: int) -> int:
    return sampler.rank(logits, position, 3)[0].token


def _object(**properties: object) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _median(seconds: Sequence[float]) -> float:
    return float(np.median(seconds)) * 1e6
