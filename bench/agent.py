"""`python -m bench agent`: drafts from texts seen before, with an agent whose requests quote each other.

One request after the other, in one process and without HTTP: without drafts, with those from the text itself
(`ngram`), and with those from earlier texts as well (`suffix`). Texts, by kind:

    agent     scripted: files that are written again with one change, results that are copied into answers
    stories   the model's own, each on another subject
    shuffled  scripted: always the same words in another order
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import agent_script, table
from bench.known_text import StepTimes
from bench.options import listed
from bench.prompts import draw
from bench.scripted_sampler import GREEDY, ScriptedSampler
from bench.traffic import limits_of
from lead.engine.commands import NGRAM, SUFFIX, Submit
from lead.engine.drafters.local_drafter import LocalDrafter
from lead.engine.drafters.ngram import NgramDrafter
from lead.engine.drafters.seen_texts import SeenTexts
from lead.engine.drafters.suffix import SuffixDrafter
from lead.engine.events import Committed
from lead.engine.scheduler import Scheduler
from lead.engine.speculation.batching import batching_for
from lead.engine.speculation.manager import SpeculationManager
from lead.engine.speculation.step_cost import StepCost
from shared import cpus
from shared.cache_edits import apply_edits
from shared.llama.model import Model
from shared.models.builtin import grown_target
from shared.models.model_file import loadable
from shared.sampling.factory import make_sampler
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Sampler
from shared.settings.model_options import ModelOptions

_WAYS: Mapping[str, tuple[str, ...]] = {"plain": (), "ngram": (NGRAM,), "suffix": (NGRAM, SUFFIX)}
_KINDS = ("agent", "stories", "shuffled")
_N_CTX = 2048
_N_MEASURED = 5
"""Of each T(n), before the first request."""
_COLUMNS = {
    "kind": ("kind", ""),
    "n_tokens": ("tokens", "d"),
    "plain": ("no drafts, tokens/s", ".1f"),
    "ngram": ("ngram", ".1f"),
    "suffix": ("ngram, suffix", ".1f"),
    "over_ngram": ("suffix / without it", ".2f"),
    "lowest": ("lowest", ".2f"),
    "highest": ("highest", ".2f"),
    "over_plain": ("suffix / no drafts", ".2f"),
}


class Job(NamedTuple):
    """A request, and what chooses the tokens of its answer."""

    request: Submit
    make_sampler: Callable[[Submit], Sampler]


class AgentEngine:
    """An engine that has seen nothing yet, with drafters of some `sources`."""

    def __init__(self, model: Model, sources: Sequence[str], seconds: Mapping[int, float]) -> None:
        """`seconds`: T(n), measured before."""
        cost = StepCost()
        for width, each in seconds.items():
            cost.learn(width, each)
        limits = limits_of(model)
        model.trim(0, 0)
        self._model = model
        self._sources = sources
        self._seen = SeenTexts(32 << 20, 3600.0, time.monotonic)
        self._jobs: dict[str, Job] = {}
        end_tokens = model.vocabulary.end_tokens
        self._speculation = SpeculationManager(
            "adaptive" if sources else "off",
            0,
            end_tokens,
            self._drafters,
            batching=batching_for(limits),
            cost=cost,
        )
        self._scheduler = Scheduler(limits, self._speculation, self._sampler, end_tokens)

    def rate(self, jobs: Sequence[Job]) -> tuple[int, float]:
        """(tokens, tokens per second) of the answers to all `jobs`, one after the other, without prompts."""
        n_tokens, seconds = 0, 0.0
        for job in jobs:
            n, took = self._answer(job)
            n_tokens, seconds = n_tokens + n, seconds + took
        return n_tokens, n_tokens / seconds

    def _answer(self, job: Job) -> tuple[int, float]:
        self._jobs[job.request.sequence] = job
        self._scheduler.submit(job.request, time.perf_counter())
        n_tokens, began = 0, 0.0
        while not self._scheduler.idle:
            n = self._step()
            if not began and n:  # the prompt has been read
                began = time.perf_counter()
            else:
                n_tokens += n
        return n_tokens, time.perf_counter() - began

    def _step(self) -> int:
        """How many tokens it committed."""
        plan = self._scheduler.plan(time.perf_counter())
        if plan is None:
            return 0
        apply_edits(plan.edits, self._model)
        if not plan.spans:
            return 0
        began = time.perf_counter()
        logits = self._model.decode(plan.spans)
        now = time.perf_counter()
        events = self._scheduler.commit(plan, logits, now, now - began)
        return sum(len(event.tokens) for event in events if isinstance(event, Committed))

    def _sampler(self, request: Submit) -> Sampler:
        return self._jobs[request.sequence].make_sampler(request)

    def _drafters(self, _: Submit) -> dict[str, LocalDrafter]:
        all_ = {NGRAM: NgramDrafter(14), SUFFIX: SuffixDrafter(self._seen, 0)}
        return {source: drafter for source, drafter in all_.items() if source in self._sources}


def scripted_jobs(requests: Sequence[agent_script.ScriptedRequest]) -> list[Job]:
    """The answers are those of the script."""

    def job(name: str, prompt: list[int], answer: list[int]) -> Job:
        request = Submit(sequence=name, tokens=prompt, sampling=GREEDY, max_tokens=len(answer))
        return Job(request, lambda _: ScriptedSampler([*prompt, *answer]))

    return [job(str(i), *each) for i, each in enumerate(requests)]


def story_jobs(model: Model, n_requests: int, n_tokens: int, seed: int) -> list[Job]:
    """The answers are the model's."""
    vocabulary = model.vocabulary
    return [
        Job(
            Submit(
                sequence=str(i),
                tokens=vocabulary.tokenize(
                    f"<|im_start|>user\n{prompt.text}<|im_end|>\n<|im_start|>assistant\n",
                    add_special=True,
                    parse_special=True,
                ),
                sampling=SamplingParameters(temperature=1.0, seed=prompt.seed),
                max_tokens=n_tokens,
            ),
            lambda request: make_sampler(request.sampling, vocabulary, request.tokens),
        )
        for i, prompt in enumerate(draw(["stories"], n_requests, seed))
    ]


def main(arguments: Sequence[str]) -> None:
    """Print a table, then a line of JSON."""
    options = _parse(arguments)
    cores = cpus.parse_cpus(options.cpus) if options.cpus else cpus.usable()
    cpus.pin(cores)
    path = loadable(options.model) if options.model else grown_target()
    model = Model(path, ModelOptions(threads=len(cores), ctx_size=_N_CTX, parallel=1, n_gpu_layers=0))
    times = StepTimes(model, options.seed)
    seconds = [times.measure() for _ in range(_N_MEASURED)][-1]
    rows = [_row(kind, model, seconds, options) for kind in options.kinds]
    table.show(f"{path.stem}, {options.requests} requests, {len(cores)} threads", rows, _COLUMNS)
    print(json.dumps({"part": "agent", "model": path.stem, "n_threads": len(cores), "rows": rows}))


def _row(
    kind: str, model: Model, seconds: Mapping[int, float], options: argparse.Namespace
) -> dict[str, Any]:
    """Medians; the ways are measured in turns, each with an engine that has seen nothing."""
    jobs = _jobs(kind, model, options)
    measured = [
        {way: AgentEngine(model, _WAYS[way], seconds).rate(jobs) for way in options.ways}
        for _ in range(options.repeats)
    ]
    rates = {way: median(each[way][1] for each in measured) for way in options.ways}
    ratios = [each["suffix"][1] / each["ngram"][1] for each in measured]
    return {
        "kind": kind,
        "n_tokens": measured[0]["suffix"][0],
        **rates,
        "over_ngram": median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "over_plain": rates["suffix"] / rates["plain"] if "plain" in rates else None,
    }


def _jobs(kind: str, model: Model, options: argparse.Namespace) -> list[Job]:
    n_requests, n_tokens, vocabulary = options.requests, options.tokens, model.vocabulary
    if kind == "agent":
        return scripted_jobs(agent_script.agent(vocabulary, n_requests, options.seed))
    if kind == "shuffled":
        return scripted_jobs(agent_script.shuffled(vocabulary, n_requests, n_tokens, options.seed))
    return story_jobs(model, n_requests, n_tokens, options.seed)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench agent", description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, help="as for lead (default: the demo's target)")
    parser.add_argument("--kinds", type=listed(str), default=list(_KINDS))
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=96, help="of each story and of each shuffled text")
    parser.add_argument("--plain", action="store_true", help="also without drafts")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cpus", help="cores, as for lead (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if unknown := set(options.kinds) - set(_KINDS):
        parser.error(f"--kinds: {', '.join(sorted(unknown))}: not of {', '.join(_KINDS)}")
    options.ways = [way for way in _WAYS if way != "plain" or options.plain]
    return options
