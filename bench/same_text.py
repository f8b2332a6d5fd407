"""`python -m bench same_text`: is the text the target's own, whatever is drafted? For each kind of memory.

For each architecture a tiny random model in f32 answers requests one by one, each read into an empty cache.
Then it answers them again, one and three at a time, beside drafters that know these texts and are right
always, half the time and never. Requests share beginnings, repeat and continue each other and find the cache
as earlier ones left it; others are cancelled on the way; the drafter joins when some answers are written.

Where another token is chosen, the last bits decided if it is also chosen with a logit that is higher by
`--tie`. Exit status 1 if a text differs otherwise.
"""

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.architectures import ARCHITECTURES, Row, finish, rows_of
from bench.options import listed
from bench.tiny_models import ArchitectureError, TinyModel
from lead.engine.commands import Cancel, PostDraft, Submit
from lead.engine.engine import Engine
from lead.engine.events import Committed, Finished
from lead.engine.exact_model import limits_of
from lead.engine.loop import carry_out
from lead.engine.speculation.batching import batching_for
from lead.engine.speculation.manager import SpeculationManager
from shared.llama.memory_traits import MemoryTraits
from shared.llama.model import Model
from shared.llama.span import Span
from shared.sampling.factory import make_sampler
from shared.sampling.parameters import SamplingParameters
from shared.settings.model_options import ModelOptions
from shared.slot_cache import common_prefix_length

_SOURCE = "drafter"
_DEPTH = 6
_N_CTX = 1024
_SECONDS_PER_STEP = 0.01
"""What each step is said to take: nothing must depend on the machine."""
_COLUMNS = {
    "architecture": ("architecture", ""),
    "memory": ("memory", ""),
    "n_texts": ("texts", "d"),
    "n_equal": ("equal", "d"),
    "n_ties": ("last bits", "d"),
    "n_wrong": ("wrong", "d"),
    "n_accepted": ("draft tokens accepted", "d"),
    "n_rejected": ("rejected", "d"),
    "n_reused": ("prompt tokens reused", "d"),
}


@dataclass(frozen=True, slots=True)
class Question:
    """A request, and the text that the target answers with."""

    prompt: tuple[int, ...]
    sampling: SamplingParameters
    answer: tuple[int, ...]

    @property
    def text(self) -> list[int]:
        """Prompt and answer."""
        return [*self.prompt, *self.answer]


class Target:
    """One slot, always read from the beginning: what every other way to serve is compared with."""

    def __init__(self, path: Path, n_tokens: int, seed: int) -> None:
        self._model = _load(path, 1)
        self._n_tokens = n_tokens
        self._random = random.Random(seed)  # noqa: S311 - seeded on purpose

    def questions(self, n: int) -> list[Question]:
        """New ones, and such that begin like earlier ones, repeat or continue them; half of them greedy."""
        questions: list[Question] = []
        for i in range(n):
            sampling = SamplingParameters(temperature=0.8 * (i % 2), seed=i)
            prompt = self._prompt(questions)
            questions.append(Question(prompt, sampling, self._answer(prompt, sampling)))
        return questions

    def is_tie(self, question: Question, n_equal: int, token: int, tie: float) -> bool:
        """Whether `token` is chosen after `n_equal` tokens of the answer if its logit is a little higher."""
        text = question.text[: len(question.prompt) + n_equal]
        logits = self._logits(text).copy()
        logits[token] += tie
        sampler = make_sampler(question.sampling, self._model.vocabulary, text)
        return sampler.choose(logits, len(text)) == token

    def close(self) -> None:
        """Free the model."""
        self._model.close()

    def _prompt(self, earlier: Sequence[Question]) -> tuple[int, ...]:
        before = self._random.choice(earlier) if earlier else None
        match self._random.randrange(4) if before else 0:
            case 1 if before:
                return (*before.text, *self._tokens(20))
            case 2 if before:
                return before.prompt
            case 3 if before:
                kept = self._random.randint(len(before.prompt) // 2, len(before.prompt))
                return (*before.prompt[:kept], *self._tokens(20))
            case _:
                return self._tokens(150)

    def _answer(self, prompt: Sequence[int], sampling: SamplingParameters) -> tuple[int, ...]:
        text = list(prompt)
        sampler = make_sampler(sampling, self._model.vocabulary, text)
        logits = self._logits(text)
        for _ in range(self._n_tokens):
            token = sampler.choose(logits, len(text))
            sampler.accept(token)
            text.append(token)
            (rows,) = self._model.decode([Span(0, len(text) - 1, [token], 1)])
            logits = rows[0]
        return tuple(text[len(prompt) :])

    def _logits(self, text: Sequence[int]) -> NDArray[np.float32]:
        """After `text`, read into an empty cache."""
        self._model.trim(0, 0)
        for at in range(0, len(text), self._model.n_batch):
            (rows,) = self._model.decode([Span(0, at, text[at : at + self._model.n_batch], 1)])
        logits: NDArray[np.float32] = rows[0]
        if not np.isfinite(logits).all():
            raise ArchitectureError("these random weights overflow: the logits are no numbers")
        return logits

    def _tokens(self, most: int) -> tuple[int, ...]:
        n_vocab = self._model.n_vocab
        return tuple(self._random.randrange(n_vocab) for _ in range(self._random.randint(most // 2, most)))


class Service:
    """An engine without processes that answers all questions beside a drafter, `n_at_once` at a time."""

    def __init__(self, path: Path, n_at_once: int, rate: float, seed: int) -> None:
        """`rate`: how often a draft token is right."""
        self._model = _load(path, n_at_once)
        self._random = random.Random(seed)  # noqa: S311 - seeded on purpose
        self._n_at_once = n_at_once
        self._rate = rate
        limits = limits_of(self._model, n_checkpoints=3)
        self._speculation = SpeculationManager("fixed", _DEPTH, frozenset(), batching=batching_for(limits))
        self._engine = Engine(
            limits,
            self._speculation,
            lambda request: make_sampler(request.sampling, self._model.vocabulary, request.tokens),
            frozenset(),
        )
        self._running: dict[str, Question] = {}
        self._texts: dict[str, list[int]] = {}
        self._now = 0.0
        self.counts: Counter[str] = Counter()

    @property
    def traits(self) -> MemoryTraits:
        return self._model.traits

    def answer(self, questions: Sequence[Question]) -> list[list[int]]:
        """The answers, in order."""
        waiting = [(f"q{i}", question) for i, question in enumerate(questions)]
        waiting[1:1] = [("cancelled", questions[0])]
        while waiting or self._running:
            while waiting and len(self._running) < self._n_at_once:
                self._submit(*waiting.pop(0))
            self._step(joined=len(self._texts) > 2)  # noqa: PLR2004 - some answers were written without it
            if len(self._texts.get("cancelled", [])) > 5 and "cancelled" in self._running:  # noqa: PLR2004
                self._engine.apply(Cancel(sequence="cancelled"), self._now)
                del self._running["cancelled"]
        self._model.close()
        return [self._texts[f"q{i}"] for i in range(len(questions))]

    def _submit(self, name: str, question: Question) -> None:
        self._running[name], self._texts[name] = question, []
        checkpoint = len(question.prompt) // 2
        self._engine.apply(
            Submit(
                sequence=name,
                tokens=list(question.prompt),
                sampling=question.sampling,
                max_tokens=len(question.answer),
                checkpoint=checkpoint,
            ),
            self._now,
        )

    def _step(self, *, joined: bool) -> None:
        if joined:
            self._speculation.connect([_SOURCE])
            for name in self._running:
                self._draft(name)
        carry_out(self._engine.next(self._now), self._engine, self._model, self._tick)
        events = self._engine.pop_events()
        self.counts["reused"] += sum(getattr(event, "n_cached", 0) for event in events)
        for event in events:
            if isinstance(event, Committed):
                self._texts[event.sequence] += event.tokens
                self.counts["accepted"] += event.n_accepted
                self.counts["rejected"] += len(event.rejected)
            elif isinstance(event, Finished):
                del self._running[event.sequence]
        self._engine.check_integrity()

    def _tick(self) -> float:
        self._now += _SECONDS_PER_STEP
        return self._now

    def _draft(self, name: str) -> None:
        question, n_done = self._running[name], len(self._texts[name])
        tokens = [
            token if self._random.random() < self._rate else (token + 1) % self._model.n_vocab
            for token in question.answer[n_done : n_done + _DEPTH]
        ]
        if tokens and n_done:
            base = len(question.prompt) + n_done
            self._speculation.post_draft(
                PostDraft(sequence=name, source=_SOURCE, base=base, tokens=tokens, received_at=self._now)
            )


def main(arguments: Sequence[str]) -> None:
    """Print a table, then a line of JSON."""
    options = _parse(arguments)
    models = (TinyModel(each, options.seed, sd=options.sd) for each in options.architectures)
    rows = list(rows_of(models, lambda architecture, path: [_row(options, architecture, path)]))
    finish("same_text", "the same texts beside right, half-right and wrong drafters", rows, _COLUMNS)


def _row(options: argparse.Namespace, architecture: str, path: Path) -> Row:
    target = Target(path, options.tokens, options.seed)
    questions = target.questions(options.texts)
    found: Counter[str] = Counter()
    for n_at_once in options.at_once:
        for rate in options.rates:
            service = Service(path, n_at_once, rate, options.seed)
            answers = service.answer(questions)
            found.update(_compare(target, questions, answers, options.tie))
            found.update(service.counts)
    target.close()
    return {
        "architecture": architecture,
        "memory": _describe(service.traits),
        "n_texts": found["equal"] + found["ties"] + found["wrong"],
        **{f"n_{name}": found[name] for name in ("equal", "ties", "wrong", "accepted", "rejected", "reused")},
    }


def _compare(
    target: Target, questions: Sequence[Question], answers: Sequence[Sequence[int]], tie: float
) -> Iterator[str]:
    """For each answer: equal, ties (the last bits decided) or wrong."""
    for question, answer in zip(questions, answers, strict=True):
        n_equal = common_prefix_length(list(question.answer), list(answer))
        if n_equal == len(question.answer):
            yield "equal"
        else:
            yield "ties" if target.is_tie(question, n_equal, answer[n_equal], tie) else "wrong"


def _describe(traits: MemoryTraits) -> str:
    if traits.can_trim:
        return "attention"
    if not traits.equal_lengths:
        return "windows"
    return "rollback" if traits.n_rollback else "checkpoints"


def _load(path: Path, n_slots: int) -> Model:
    options = ModelOptions(
        ctx_size=n_slots * _N_CTX,
        parallel=n_slots,
        batch_size=256,
        ubatch_size=64,
        threads=1,
        n_gpu_layers=0,
        cache_type_k="f32",
        cache_type_v="f32",
    )
    return Model(path, options)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench same_text", description=__doc__.split("\n")[0])
    parser.add_argument("--architectures", type=listed(str), default=list(ARCHITECTURES))
    parser.add_argument("--rates", type=listed(float), default=[1.0, 0.5, 0.0], help="of right draft tokens")
    parser.add_argument("--at-once", type=listed(int), default=[1, 3], help="sequences at the same time")
    parser.add_argument("--texts", type=int, default=8, help="requests in each run")
    parser.add_argument("--tokens", type=int, default=40, help="of each answer")
    parser.add_argument("--seed", type=int, default=1, help="of the weights and of the requests")
    parser.add_argument("--sd", type=float, default=0.3, help="standard deviation of the weights")
    parser.add_argument(
        "--tie", type=float, default=0.01, help="difference of logits that last bits may make"
    )
    parser.add_argument("--quick", action="store_true", help="three requests of 16 tokens")
    options = parser.parse_args(arguments)
    if options.quick:
        options.texts, options.tokens = 3, 16
    return options
