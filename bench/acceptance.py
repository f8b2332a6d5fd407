"""`python -m bench acceptance`: how often the draft model's choice is the target's, by temperature and rule.

Along texts that the target samples, at every position: the coupled choice (what backs draft), the draft model's
likeliest token (what others draft), and 1 - TV, the largest chance that any drafting rule can have of proposing
what the target samples. No truncation, so that all three speak of the same two distributions. Uses the
shipped pair itself: a grown model computes the same function.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from shared.builtin import builtin_draft, builtin_target
from shared.llama.chain import make_sampler
from shared.llama.model import Model, ModelOptions
from shared.llama.span import Span
from shared.sampling import SamplingParameters

_TEMPERATURES = (0.7, 1.0, 1.5, 2.0)
_PROMPTS = (
    "Tell me a story about a fox who gets lost.",
    "Write a short story about a baker who finds a letter.",
    "What is speculative decoding?",
    "Tell me a bedtime story about a whale.",
    "How does a for loop work in Python?",
    "Write a story about a girl who meets a dragon.",
    "What is the capital of Japan?",
    "Tell me a story about two friends in a forest.",
)
_CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


@dataclass(frozen=True, slots=True)
class Position:
    """One place in a text: did the rule propose the target's token; the overlap of the distributions, 1 - TV."""

    coupled: bool
    likeliest: bool
    overlap: float


@dataclass(frozen=True, slots=True)
class Row:
    """Fractions over all positions of one temperature."""

    temperature: float
    n_positions: int
    coupled: float
    likeliest: float
    overlap: float


def main(arguments: Sequence[str]) -> None:
    """Print a table, then one JSON line."""
    parser = argparse.ArgumentParser(prog="bench acceptance", description=__doc__)
    parser.add_argument("--seeds", type=int, default=8, help="texts per prompt")
    parser.add_argument("--tokens", type=int, default=120, help="tokens per text")
    parser.add_argument("--quick", action="store_true", help="one text per prompt")
    options = parser.parse_args(arguments)
    n_seeds = 1 if options.quick else options.seeds
    target, draft = (_load(path) for path in (builtin_target(), builtin_draft()))
    rows = [_measure(target, draft, temperature, n_seeds, options.tokens) for temperature in _TEMPERATURES]
    table = Table(title="Accepted fraction along the target's own samples, no truncation")
    for name in (
        "temperature",
        "positions",
        "coupled",
        "1 - TV",
        "of that",
        "likeliest token",
        "coupled / likeliest",
    ):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            f"{row.temperature:g}",
            str(row.n_positions),
            f"{row.coupled:.3f}",
            f"{row.overlap:.3f}",
            f"{row.coupled / row.overlap:.3f}",
            f"{row.likeliest:.3f}",
            f"{row.coupled / row.likeliest:.2f}",
        )
    Console().print(table)
    print(json.dumps({"acceptance": [{name: getattr(row, name) for name in Row.__slots__} for row in rows]}))


def _load(path: object) -> Model:
    return Model(ModelOptions(path, n_ctx=1024, n_slots=1, n_batch=512, n_threads=1))  # type: ignore[arg-type]  # a Path


def _measure(target: Model, draft: Model, temperature: float, n_seeds: int, n_tokens: int) -> Row:
    found = [
        position
        for prompt in _PROMPTS
        for seed in range(n_seeds)
        for position in _positions(target, draft, prompt, seed, temperature, n_tokens)
    ]
    return Row(
        temperature,
        len(found),
        float(np.mean([position.coupled for position in found])),
        float(np.mean([position.likeliest for position in found])),
        float(np.mean([position.overlap for position in found])),
    )


def _positions(
    target: Model, draft: Model, prompt: str, seed: int, temperature: float, n_tokens: int
) -> Iterator[Position]:
    vocabulary = target.vocabulary
    tokens = vocabulary.tokenize(_CHAT.format(prompt), add_special=True, parse_special=True)
    parameters = SamplingParameters(seed=seed, temperature=temperature, top_k=0, top_p=1, min_p=0)
    sampler = make_sampler(parameters, vocabulary, tokens)
    for model in (target, draft):
        model.trim(0, 0)
    n_done = 0
    for _ in range(n_tokens):
        ours, theirs = (_logits(model, tokens, n_done) for model in (target, draft))
        n_done = len(tokens)
        chosen, drafted = (sampler.choose(logits, len(tokens)) for logits in (ours, theirs))
        p, q = (_softmax(logits / temperature) for logits in (ours, theirs))
        yield Position(drafted == chosen, int(np.argmax(theirs)) == chosen, float(np.minimum(p, q).sum()))
        tokens.append(chosen)
        if chosen in vocabulary.end_tokens:
            return


def _logits(model: Model, tokens: Sequence[int], n_done: int) -> NDArray[np.float32]:
    (rows,) = model.decode([Span(0, n_done, tokens[n_done:], 1)])
    return rows[0].copy()


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    weights = np.exp(logits.astype(np.float64) - logits.max())
    return np.asarray(weights / weights.sum())


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
