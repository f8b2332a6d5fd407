"""How often a draft model's choice is the target's, by temperature and rule.

    python -m models.smollm2.acceptance --seeds 3

Along texts that the target samples, at every position: the coupled choice (what backs draft), the draft
model's likeliest token (what others draft), and 1 - TV, the largest chance that any drafting rule can have of
proposing what the target samples. No truncation, so that all three speak of the same two distributions. Where
the coupled choice is wrong, the target's token may be a runner-up: a second table has the recall of those, by
the confidence of the choice and by how many right tokens went before. Uses the shipped pair itself (a grown
model computes the same function), or any two models with one vocabulary.
"""

import argparse
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lab.parts import report
from lead.chat_format.request_parts import ChatMessage, TemplateInput
from lead.chat_format.template import model_template
from shared.errors import ConfigError
from shared.llama.model import Model
from shared.llama.span import Span
from shared.memory.plan_memory import plan_memory
from shared.model_files.builtin import builtin_draft, builtin_target, named_model
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
_RANKS = (1, 2, 3, 4, 8, 16)
_RECALL_COLUMNS = {
    "kind": ("prompts", ""),
    "temperature": ("temperature", "g"),
    "where": ("where", ""),
    "n_recovered": ("recovered", "d"),
    **{f"recall_{n}": (f"among {n}", ".3f") for n in _RANKS},
    "expected_1": ("among 1, by confidence", ".3f"),
}
_WHERE = {
    "everywhere": ("place", 0, math.inf),
    "confidence < .3": ("confidence", 0, 0.3),
    "confidence .3 to .6": ("confidence", 0.3, 0.6),
    "confidence .6 to .9": ("confidence", 0.6, 0.9),
    "confidence > .9": ("confidence", 0.9, math.inf),
    "first of a draft": ("place", 0, 1),
    "second or third": ("place", 1, 3),
    "later": ("place", 3, math.inf),
}
"""A field of `Position` from one value up to another."""


@dataclass(frozen=True, slots=True)
class Position:
    """One position of a text: whether each rule proposed the target's token; the distributions' overlap.

    rank: which of the draft model's choices is the target's token, from 0; None: none of the first 17.
    confidence: of the first choice; runner_up: of the second. place: right choices in a row before this one.
    """

    rank: int | None
    likeliest: bool
    overlap: float
    confidence: float
    runner_up: float
    place: int

    @property
    def coupled(self) -> bool:
        return self.rank == 0


def main(arguments: Sequence[str]) -> None:
    """Print a table, then one JSON line."""
    parser = argparse.ArgumentParser(prog="models.smollm2.acceptance", description=__doc__)
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
    paths = (options.model, options.draft_model)
    target, draft = (Model(plan_memory(path, options_of_both)) for path in paths)
    if target.vocabulary.n_tokens != draft.vocabulary.n_tokens:
        raise ConfigError("the two models have different vocabularies")
    prompts = _read_prompts(options.prompts) if options.prompts else {"stories and questions": _PROMPTS}
    rows, recalls = [], []
    for kind, texts in prompts.items():
        for temperature in options.temperatures:
            found = _measure((target, draft), texts, temperature, options.seeds, options.tokens)
            known = {"kind": kind, "temperature": temperature}
            rows.append({**known, **_summary(found)})
            recalls += [{**known, **recall} for recall in _recalls(found)]
    report.show("Accepted fraction along the target's own samples, no truncation", rows, _COLUMNS)
    report.show("Recovered tokens that are runners-up of the draft model", recalls, _RECALL_COLUMNS)
    report.finish("acceptance", [*rows, *recalls], options)


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
    n_done = place = 0
    for model in (target, draft):
        model.trim(0, 0)
    for _ in range(n_tokens):
        theirs, ours = (_next_logits(model, tokens, n_done) for model in (target, draft))
        n_done = len(tokens)
        chosen, ranked = sampler.choose(theirs, n_done), sampler.rank(ours, n_done, 1 + max(_RANKS))
        p, q = (_distribution(logits, parameters.temperature) for logits in (theirs, ours))
        rank = next((rank for rank, each in enumerate(ranked) if each.token == chosen), None)
        yield Position(
            rank,
            int(np.argmax(ours)) == chosen,
            float(np.minimum(p, q).sum()),
            ranked[0].confidence,
            ranked[1].confidence,
            place,
        )
        place = place + 1 if rank == 0 else 0
        tokens.append(chosen)
        if chosen in vocabulary.end_tokens:
            return


def _next_logits(model: Model, tokens: Sequence[int], n_done: int) -> NDArray[np.float32]:
    """A copy of the logits behind `tokens`, of which `n_done` are decoded."""
    (rows,) = model.decode([Span(0, n_done, tokens[n_done:], 1)])
    return np.array(rows[0])


def _measure(
    pair: tuple[Model, Model], prompts: Sequence[str], temperature: float, n_seeds: int, n_tokens: int
) -> list[Position]:
    """Target and draft model along one text for each prompt and seed; at temperature 0 all seeds are one."""
    found: list[Position] = []
    for prompt, seed in itertools.product(prompts, range(n_seeds if temperature else 1)):
        parameters = SamplingParameters(seed=seed, temperature=temperature, top_k=0, top_p=1, min_p=0)
        found += positions(*pair, prompt, parameters, n_tokens)
    return found


def _summary(found: Sequence[Position]) -> dict[str, float]:
    coupled, likeliest, overlap = (
        float(np.mean([getattr(position, name) for position in found]))
        for name in ("coupled", "likeliest", "overlap")
    )
    return {
        "n_positions": len(found),
        "coupled": coupled,
        "overlap": overlap,
        "of_overlap": coupled / overlap,
        "likeliest": likeliest,
        "over_likeliest": coupled / likeliest,
    }


def _recalls(found: Sequence[Position]) -> Iterator[dict[str, object]]:
    """For each of `_WHERE` in which tokens were recovered."""
    for where, (name, low, high) in _WHERE.items():
        recovered = [each for each in found if each.rank != 0 and low <= getattr(each, name) < high]
        if not recovered:
            continue
        expected = np.mean([each.runner_up / max(1e-6, 1 - each.confidence) for each in recovered])
        ranks = [each.rank for each in recovered if each.rank]
        shares = {f"recall_{n}": sum(rank <= n for rank in ranks) / len(recovered) for n in _RANKS}
        yield {"where": where, "n_recovered": len(recovered), **shares, "expected_1": float(expected)}


def _distribution(logits: NDArray[np.float32], temperature: float) -> NDArray[np.float64]:
    """At temperature 0 the likeliest token has it all."""
    if temperature == 0:
        return np.asarray(np.arange(len(logits)) == np.argmax(logits), np.float64)
    weights = np.exp((logits.astype(np.float64) - logits.max()) / temperature)
    return np.asarray(weights / weights.sum())
