"""`python -m bench acceptance`: how often a draft model's choice is the target's, by temperature and rule.

Along texts that the target samples, at every position: the coupled choice (what backs draft), the draft
model's likeliest token (what others draft), and 1 - TV, the largest chance that any drafting rule can have of
proposing what the target samples. No truncation, so that all three speak of the same two distributions. Uses
the shipped pair itself (a grown model computes the same function), or any two models with one vocabulary.
"""

import argparse
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench import report
from lead.chat.request_parts import ChatMessage
from lead.chat.template import TemplateInput, model_template
from shared.errors import ConfigError
from shared.llama.model import Model
from shared.llama.span import Span
from shared.models.builtin import builtin_draft, builtin_target, named_model
from shared.sampling.factory import make_sampler
from shared.sampling.parameters import SamplingParameters
from shared.settings.model_options import ModelOptions

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
_COLUMNS = {
    "kind": ("prompts", ""),
    "temperature": ("temperature", "g"),
    "n_positions": ("positions", "d"),
    "coupled": ("coupled", ".3f"),
    "overlap": ("1 - TV", ".3f"),
    "of_overlap": ("coupled / (1 - TV)", ".3f"),
    "likeliest": ("likeliest token", ".3f"),
    "over_likeliest": ("coupled / likeliest", ".2f"),
}


@dataclass(frozen=True, slots=True)
class Position:
    """One position of a text: whether each rule proposed the target's token; the distributions' overlap."""

    coupled: bool
    likeliest: bool
    overlap: float


def main(arguments: Sequence[str]) -> None:
    """Print a table, then one JSON line."""
    parser = argparse.ArgumentParser(prog="bench acceptance", description=__doc__)
    parser.add_argument("--seeds", type=int, default=8, help="texts per prompt")
    parser.add_argument("--tokens", type=int, default=120, help="tokens per text")
    report.add_options(parser)
    parser.add_argument("--temperatures", type=float, nargs="+", default=_TEMPERATURES)
    parser.add_argument("--model", type=named_model_of, default=builtin_target(), help="a file, or smollm2")
    parser.add_argument("--draft-model", type=named_model_of, default=builtin_draft())
    parser.add_argument(
        "--prompts", type=Path, help='a file of lines {"kind": …, "prompt": …}, with rows for each kind'
    )
    options = report.parse(parser, arguments, {"seeds": 1})
    options_of_both = ModelOptions(ctx_size=1024, parallel=1, threads=1)
    target, draft = (Model(path, options_of_both) for path in (options.model, options.draft_model))
    if target.vocabulary.n_tokens != draft.vocabulary.n_tokens:
        raise ConfigError("the two models have different vocabularies")
    prompts = _read_prompts(options.prompts) if options.prompts else {"stories and questions": _PROMPTS}
    rows = [
        {"kind": kind, **_measure((target, draft), texts, temperature, options.seeds, options.tokens)}
        for kind, texts in prompts.items()
        for temperature in options.temperatures
    ]
    report.show("Accepted fraction along the target's own samples, no truncation", rows, _COLUMNS)
    report.finish("acceptance", rows, options)


def named_model_of(text: str) -> Path:
    """A path, or the file of a model with a name. Raises ConfigError."""
    return named_model(Path(text))


def _read_prompts(path: Path) -> dict[str, list[str]]:
    """Prompts by kind, in the file's order. Raises ConfigError."""
    found: dict[str, list[str]] = {}
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            each = json.loads(line)
            found.setdefault(each["kind"], []).append(each["prompt"])
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"--prompts {path}: {error!r}") from error
    return found


def positions(
    target: Model, draft: Model, prompt: str, parameters: SamplingParameters, n_tokens: int
) -> Iterator[Position]:
    """Those of one text that the target samples; `parameters` must not truncate."""
    vocabulary = target.vocabulary
    template, _ = model_template(vocabulary, None)
    text = template.render(TemplateInput([ChatMessage(role="user", content=prompt)]))
    tokens = vocabulary.tokenize(text, add_special=True, parse_special=True)
    sampler = make_sampler(parameters, vocabulary, tokens)
    n_done = 0
    for model in (target, draft):
        model.trim(0, 0)
    for _ in range(n_tokens):
        theirs, ours = (_next_logits(model, tokens, n_done) for model in (target, draft))
        n_done = len(tokens)
        chosen, drafted = (sampler.choose(logits, n_done) for logits in (theirs, ours))
        p, q = (_distribution(logits, parameters.temperature) for logits in (theirs, ours))
        yield Position(drafted == chosen, int(np.argmax(ours)) == chosen, float(np.minimum(p, q).sum()))
        tokens.append(chosen)
        if chosen in vocabulary.end_tokens:
            return


def _next_logits(model: Model, tokens: Sequence[int], n_done: int) -> NDArray[np.float32]:
    """A copy of the logits behind `tokens`, of which `n_done` are decoded."""
    (rows,) = model.decode([Span(0, n_done, tokens[n_done:], 1)])
    return np.array(rows[0])


def _measure(
    pair: tuple[Model, Model], prompts: Sequence[str], temperature: float, n_seeds: int, n_tokens: int
) -> dict[str, float]:
    """Target and draft model along one text for each prompt and seed; at temperature 0 all seeds are one."""
    found: list[Position] = []
    for prompt, seed in itertools.product(prompts, range(n_seeds if temperature else 1)):
        parameters = SamplingParameters(seed=seed, temperature=temperature, top_k=0, top_p=1, min_p=0)
        found += positions(*pair, prompt, parameters, n_tokens)
    coupled, likeliest, overlap = (
        float(np.mean([getattr(position, name) for position in found])) for name in Position.__slots__
    )
    return {
        "temperature": temperature,
        "n_positions": len(found),
        "coupled": coupled,
        "overlap": overlap,
        "of_overlap": coupled / overlap,
        "likeliest": likeliest,
        "over_likeliest": coupled / likeliest,
    }


def _distribution(logits: NDArray[np.float32], temperature: float) -> NDArray[np.float64]:
    """At temperature 0 the likeliest token has it all."""
    if temperature == 0:
        return np.asarray(np.arange(len(logits)) == np.argmax(logits), np.float64)
    weights = np.exp((logits.astype(np.float64) - logits.max()) / temperature)
    return np.asarray(weights / weights.sum())
