"""`python -m bench hybrid`: what it costs that a memory cannot be cut back to any length.

Models with recurrent states or sliding windows against one with plain attention, whose steps should take
about as long:

    second turn   a further turn of a chat: seconds to the first token. Either the request continues the text
                  that the engine has in its cache, or it departs from it before the last answer, as with chat
                  templates that drop what a model has thought. "Over first" compares what share of its first
                  turn that is, since a token takes models differently long to read
    drafts        tokens that a back drafts in a second, in steps: what the model alone would take for each
                  is 1. Some are committed, then the draft is rejected
    memory        what is stated at start-up beside the weights, and what is taken when the context is full
"""

import argparse
import itertools
import json
import multiprocessing
import random
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from back.settings import STATES_BESIDE_DRAFT
from bench import table
from bench.options import listed
from bench.scripted_sampler import GREEDY, ScriptedSampler
from bench.traffic import limits_of
from lead.engine.calibration import varied_tokens
from lead.engine.commands import RequestOptions, Submit
from lead.engine.events import Committed
from lead.engine.scheduler import Scheduler
from lead.engine.speculation.batching import batching_for
from lead.engine.speculation.manager import SpeculationManager
from shared import cpus
from shared.cache_edits import apply_edits
from shared.drafting.drafter import Drafter
from shared.drafting.drafter_options import DrafterOptions
from shared.llama.model import Model
from shared.llama.span import Span
from shared.protocol import Extend, Open
from shared.sampling.sampler import Sampler
from shared.settings.model_options import ModelOptions

_N_HEADER = 4
"""Tokens at the end of a prompt with which the template begins an answer."""
_N_AHEAD = 8
_COLUMNS = {
    "model": ("model", ""),
    "memory": ("can be cut back by", ""),
    "step_ms": ("step, ms", ".1f"),
    "first": ("first turn, s", ".2f"),
    "continued": ("second turn, s", ".3f"),
    "departing": ("departing, s", ".3f"),
    "drafts": ("drafts per step time", ".3f"),
    "stated": ("stated, MB", ".1f"),
    "taken": ("taken, MB", ".1f"),
}


class Chat:
    """An engine without processes whose answers are predetermined."""

    def __init__(self, model: Model, seed: int) -> None:
        self._model = model
        self._random = random.Random(seed)  # noqa: S311 - seeded on purpose
        limits = limits_of(model, 0 if model.traits.can_trim else 8)
        self._speculation = SpeculationManager("off", 0, frozenset(), batching=batching_for(limits))
        self._scheduler = Scheduler(limits, self._speculation, self._sampler, frozenset())
        self._history: list[int] = []
        self._n_prompt = self._n_turns = 0

    def begin(self, n_prompt: int, n_answer: int) -> float:
        """A first turn; seconds to the first token of its answer, which has `n_answer` tokens."""
        self._history = []
        return self._turn(n_prompt, n_answer)

    def go_on(self, n_question: int, n_answer: int, *, departing: bool) -> float:
        """The next turn, with `n_question` new tokens; seconds to the first token of its answer.

        departing: the last turn's prompt ended otherwise than it is in the history.
        """
        if departing:
            at = self._n_prompt
            self._history[at - _N_HEADER : at] = self._tokens(_N_HEADER)
        return self._turn(n_question, n_answer)

    def _turn(self, n_new: int, n_answer: int) -> float:
        checkpoint = len(self._history)
        prompt = [*self._history, *self._tokens(n_new)]
        self._n_prompt, self._n_turns = len(prompt), self._n_turns + 1
        self._history = [*prompt, *self._tokens(n_answer)]
        request = Submit(
            sequence=f"turn {self._n_turns}",
            tokens=prompt,
            sampling=GREEDY,
            max_tokens=n_answer,
            options=RequestOptions(checkpoint=checkpoint),
        )
        began, first = time.perf_counter(), 0.0
        self._scheduler.submit(request, began)
        while not self._scheduler.idle:
            if self._step() and not first:
                first = time.perf_counter() - began
        return first

    def _step(self) -> bool:
        """Whether a token was committed."""
        plan = self._scheduler.plan(time.perf_counter())
        if plan is None:
            return False
        apply_edits(plan.edits, self._model)
        if not plan.spans:
            return False
        rows = self._model.decode(plan.spans)
        events = self._scheduler.commit(plan, rows, time.perf_counter(), 0.01)
        return any(isinstance(event, Committed) for event in events)

    def _sampler(self, _request: Submit) -> Sampler:
        return ScriptedSampler([*self._history, 0])

    def _tokens(self, n: int) -> list[int]:
        return [self._random.randrange(self._model.n_vocab) for _ in range(n)]


def drafted_per_second(model: Model, n_rounds: int, seed: int) -> float:
    """Of one sequence: a draft is made to its end, part of it is committed, the rest is wrong."""
    rng = random.Random(seed)  # noqa: S311 - seeded on purpose
    options = DrafterOptions(n_slots=1, n_window=model.n_ctx_slot, n_ahead=_N_AHEAD)
    drafter = Drafter(
        model, options, lambda parameters, history, _=None: Sampler(parameters, None, history), frozenset()
    )
    text = [rng.randrange(model.n_vocab) for _ in range(64)]
    drafter.handle(Open(sequence="s", sampling=GREEDY, tokens=list(text)))
    drafter.step()
    n_drafted, seconds = 0, 0.0
    for _ in range(n_rounds):
        began = time.perf_counter()
        while not drafter.idle:
            drafter.step()
        seconds += time.perf_counter() - began
        draft = drafter.draft("s")
        tokens = draft.tokens[: rng.randint(0, _N_AHEAD - 1)] if draft else []
        n_drafted += len(draft.tokens) if draft else 0
        news = [*tokens, rng.randrange(model.n_vocab)]
        began = time.perf_counter()
        drafter.handle(Extend(sequence="s", start=len(text), tokens=news))
        seconds += time.perf_counter() - began
        text += news
    return n_drafted / seconds


def step_seconds(model: Model, n_steps: int) -> float:
    """T(1): the median time of a step with one token."""
    model.trim(0, 0)
    tokens = varied_tokens(model.n_vocab, 64 + n_steps)
    model.decode([Span(0, 0, tokens[:64], 0)])
    seconds = []
    for position in range(64, 64 + n_steps):
        began = time.perf_counter()
        model.decode([Span(0, position, [tokens[position]], 1)])
        seconds.append(time.perf_counter() - began)
    model.trim(0, 0)
    return median(seconds)


def fill(model: Model) -> None:
    """Read a prompt that fills a slot, then forget it: a process has memory only where it has written."""
    n_each = model.n_ubatch
    for start in range(0, model.n_ctx_slot - n_each + 1, n_each):
        model.decode([Span(0, start, varied_tokens(model.n_vocab, n_each), 1)])
    model.trim(0, 0)


def own_bytes() -> int:
    """What this process has allocated, without the model file, which is mapped."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def main(arguments: Sequence[str]) -> None:
    """Print a table and the ratios, then a line of JSON."""
    options = _parse(arguments)
    if options.cpus:
        cpus.pin(cpus.parse_cpus(options.cpus))
    plain, *hybrids = _measured(options, [options.plain, *options.models])
    rows = [plain | {"ratios": {}}, *(row | {"ratios": _ratios(row, plain)} for row in hybrids)]
    table.show(f"a chat of {options.prompt} tokens, a back, and memory", rows, _COLUMNS)
    for row in rows[1:]:
        print(row["model"], *(f"{name} {value:.3f}" for name, value in row["ratios"].items()))
    print(json.dumps({"part": "hybrid", "rows": rows}))


def _ratios(hybrid: dict[str, Any], plain: dict[str, Any]) -> dict[str, float]:
    """Of the first model over the second; memory: taken over stated."""
    ratios = {name: hybrid[name] / plain[name] for name in ("first", "continued", "departing", "drafts")}
    over_first = {f"{name} over first": ratios[name] / ratios["first"] for name in ("continued", "departing")}
    return ratios | over_first | {"taken": hybrid["taken"] / hybrid["stated"]}


def _measured(options: argparse.Namespace, paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Each model in a process of its own: another one would reuse what an earlier one has freed."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, max_tasks_per_child=1) as processes:
        return list(processes.map(_row, itertools.repeat(options), paths))


def _row(options: argparse.Namespace, path: Path) -> dict[str, Any]:
    before = own_bytes()
    model = _load(options, path)
    fill(model)
    taken = own_bytes() - before
    chat = Chat(model, options.seed)
    first = chat.begin(options.prompt, options.answer)
    turns = {
        departing: [
            chat.go_on(options.question, options.answer, departing=departing) for _ in range(options.repeats)
        ]
        for departing in (False, True)
    }
    step = step_seconds(model, options.steps)
    traits, size = model.traits, model.memory_size
    model.close()
    draft_model = _load(options, path, n_step_checkpoints=_N_AHEAD + STATES_BESIDE_DRAFT)
    drafts = drafted_per_second(draft_model, options.rounds, options.seed)
    draft_model.close()
    return {
        "model": path.stem,
        "memory": "any" if traits.can_trim else f"{traits.n_rollback} tokens",
        "step_ms": 1e3 * step,
        "first": first,
        "continued": median(turns[False]),
        "departing": median(turns[True]),
        "drafts": drafts * step,
        "stated": size.total / 1e6,
        "taken": taken / 1e6,
    }


def _load(options: argparse.Namespace, path: Path, n_step_checkpoints: int = 0) -> Model:
    given = ModelOptions(
        ctx_size=options.ctx_size,
        parallel=1,
        threads=1,
        n_gpu_layers=0,
        swa_full=n_step_checkpoints > 0,  # as a back does
    )
    return Model(path, given, 1, n_step_checkpoints)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench hybrid", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--models", type=listed(Path), required=True, help="with recurrent states or sliding windows"
    )
    parser.add_argument("--plain", type=Path, required=True, help="with attention over the whole text")
    parser.add_argument("--prompt", type=int, default=2000, help="tokens of the first turn")
    parser.add_argument("--answer", type=int, default=64, help="tokens of its answer")
    parser.add_argument("--question", type=int, default=40, help="tokens of the second question")
    parser.add_argument("--ctx-size", type=int, default=3072)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=40, help="drafts")
    parser.add_argument("--steps", type=int, default=100, help="to measure the time of a step")
    parser.add_argument("--cpus", help="cores to run on")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)
