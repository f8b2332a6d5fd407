"""`python -m bench known_text`: the engine with a drafter that knows the text and errs at a given rate.

The drafter costs nothing, so what is measured is the target alone: verifying, taking back what was rejected,
and the choice of depths. The bound for such a drafter follows from T(n), the time of a step with n tokens: a
step at depth d commits one token more than are right of the first d. It is computed from the drafts that were
made, so that luck does not count.

With `--peer`, llama-server answers in turns with it, on the same core, with drafts that are right as often.
"""

import argparse
import json
import math
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from bench import peer, report
from bench.options import listed
from lead.engine.calibration import StepTimer
from lead.engine.commands import PolicyName, SetBacks, Submit
from lead.engine.engine import Engine
from lead.engine.events import Committed, Finished
from lead.engine.loop import carry_out
from lead.engine.speculation.manager import SpeculationManager
from lead.engine.speculation.memory_batching import batching_for
from lead.engine.target_loading import limits_of
from lead.simulation.simulated_back import GREEDY
from lead.simulation.simulated_lead import TextSampler
from shared import cpus
from shared.llama.model import Model
from shared.memory.plan_memory import plan_memory
from shared.protocol import Draft
from shared.sampling.sampler import Sampler
from shared.settings.model_options import ModelOptions
from shared.step_cost import StepCost

_SOURCE = "known"
_N_AHEAD = 12
_PROMPT = 32
_BATCH_SIZES = (*range(1, 11), 13)
_CALIBRATIONS = 3
_COLUMNS = {
    "rate": ("right", ".2f"),
    "plain": ("plain, tokens/s", ".1f"),
    "drafted": ("with drafts", ".1f"),
    "speedup": ("speed-up", ".2f"),
    "bound": ("bound by T(n)", ".2f"),
    "share": ("of the bound", ".2f"),
}


@dataclass(frozen=True, slots=True)
class Answer:
    """How an answer went."""

    n_tokens: int
    seconds: float
    n_right: tuple[int, ...] = ()
    """For each draft, how many of its tokens were right before the first wrong one."""

    @property
    def rate(self) -> float:
        """Tokens per second, without the prompt."""
        return self.n_tokens / self.seconds


class KnownTexts:
    """An engine without processes, whose sequences have predetermined texts."""

    def __init__(self, model: Model, cost: StepCost, seed: int) -> None:
        self._model = model
        self._random = random.Random(seed)  # noqa: S311 - seeded on purpose
        limits = limits_of(model)
        self._speculation = SpeculationManager("off", 0, frozenset(), batching=batching_for(limits, cost))
        self._engine = Engine(limits, self._speculation, self._sampler, frozenset())
        self._engine.apply(SetBacks(names=[_SOURCE]), time.perf_counter())
        self._texts: dict[str, list[int]] = {}

    def answer(self, policy: PolicyName, rate: float, n_tokens: int, n_sequences: int = 1) -> Answer:
        """Generate `n_tokens` of each of `n_sequences`; each draft token is right with probability `rate`."""
        self._speculation.set_policy(policy, 0)
        ids = [f"{policy}-{len(self._texts)}-{i}" for i in range(n_sequences)]
        for each in ids:
            self._submit(each, n_tokens)
        seconds, generated = 0.0, dict.fromkeys(ids, 0)
        n_right: list[int] = []
        while not self._engine.idle:
            drafting = [each for each in ids if policy != "off" and 0 < generated[each] < n_tokens]
            n_right += [self._post_draft(each, _PROMPT + generated[each], rate) for each in drafting]
            began = time.perf_counter()
            committed = self._step()
            if any(generated.values()):
                seconds += time.perf_counter() - began
            for event in committed:
                generated[event.sequence] += len(event.tokens)
        return Answer(n_sequences * (n_tokens - 1), seconds, tuple(n_right))

    def _sampler(self, request: Submit) -> Sampler:
        return TextSampler(self._texts[request.sequence].__getitem__)

    def _submit(self, sequence: str, n_tokens: int) -> None:
        text = self._random.choices(range(self._model.n_vocab), k=_PROMPT + n_tokens + 1)
        self._texts[sequence] = text
        request = Submit(
            sequence=sequence,
            tokens=text[:_PROMPT],
            sampling=GREEDY,
            max_tokens=n_tokens,
            cache_prompt=False,  # `time_steps` may have emptied the slot
        )
        self._engine.apply(request, time.perf_counter())

    def _step(self) -> list[Committed]:
        carry_out(self._engine.next(time.perf_counter()), self._engine, self._model, time.perf_counter)
        events = self._engine.pop_events()
        assert not any(isinstance(event, Finished) and event.reason != "length" for event in events)
        return [event for event in events if isinstance(event, Committed)]

    def _post_draft(self, sequence: str, base: int, rate: float) -> int:
        """Returns how many of its tokens are right before the first wrong one."""
        tokens = self._texts[sequence][base : base + _N_AHEAD]
        n_right = next((i for i in range(len(tokens)) if self._random.random() >= rate), len(tokens))
        wrong = [(token + 1) % self._model.n_vocab for token in tokens[n_right:]]
        draft = Draft(
            sequence=sequence,
            source=_SOURCE,
            base=base,
            tokens=tokens[:n_right] + wrong,
            confidences=[max(rate, 0.01)] * len(tokens),
            received_at=time.perf_counter(),
        )
        self._engine.apply(draft, draft.received_at)
        return n_right


def time_steps(model: Model, times: StepCost) -> dict[int, float]:
    """Time a step of each size once more; T(n) as `times` has learned it so far."""
    model.trim(0, 0)  # an answer may be in this slot
    timer = StepTimer.of_target(model, model.n_vocab, time.perf_counter)
    timer.calibrate(times, batch_sizes=_BATCH_SIZES, n_repeats=1, max_seconds=math.inf)
    return times.table()


def bound(n_right: Sequence[int], seconds: dict[int, float], most: int) -> float:
    """The largest speed-up with these drafts, each verified to the same depth of up to `most`."""
    best = 1.0
    for depth in range(1, most + 1):
        if depth + 1 in seconds:
            expected = 1 + fmean(min(n, depth) for n in n_right)
            best = max(best, expected * seconds[1] / seconds[depth + 1])
    return best


def main(arguments: Sequence[str]) -> None:
    """Print a table, then a line of JSON."""
    options = _parse(arguments)
    if options.cpus:
        cpus.pin(cpus.parse_cpus(options.cpus))
    model = Model(
        plan_memory(
            options.model,
            ModelOptions(threads=options.threads, ctx_size=2048, parallel=options.sequences, n_gpu_layers=0),
        )
    )
    times, cost = StepCost(), StepCost()
    for _ in range(_CALIBRATIONS):
        seconds = time_steps(model, times)
    for size, each in seconds.items():
        cost.learn(size, each)
    texts = KnownTexts(model, cost, options.seed)
    rows = [_row(texts, model, times, options, rate) for rate in options.rates]
    seconds = time_steps(model, times)
    ratios = {size: round(each / seconds[1], 2) for size, each in seconds.items()}
    report.show(f"{options.model.name}: {model.traits}, T(n)/T(1) {ratios}", rows, _COLUMNS)
    for row in rows:
        for depth, rate in row["peer"].items():
            ratio = row["drafted"] / rate
            print(f"{peer.NAME}, drafts of {depth}: {rate:.1f} tokens/s; here {ratio:.2f} times that")
    print(json.dumps({"part": "known_text", "model": options.model.name, "step": ratios, "rows": rows}))


def _row(
    texts: KnownTexts, model: Model, times: StepCost, options: argparse.Namespace, rate: float
) -> dict[str, Any]:
    """Plain and drafted answers and steps of each size take turns."""
    plain, drafted = [], []
    peers = defaultdict[int, list[float]](list)
    texts.answer("adaptive", rate, options.tokens, options.sequences)  # what it has learned counts, as in use
    with ExitStack() as stack:
        others = _peers(options, rate, stack) if options.peer else {}
        for _ in range(options.repeats):
            plain.append(texts.answer("off", rate, options.tokens, options.sequences).rate)
            drafted.append(texts.answer("adaptive", rate, options.tokens, options.sequences))
            seconds = time_steps(model, times)
            for depth, other in others.items():
                peers[depth].append(other.tokens_per_second(options.tokens))
    speedup = median(after.rate / before for before, after in zip(plain, drafted, strict=True))
    limit = bound(
        [n for each in drafted for n in each.n_right],
        seconds,
        min(model.traits.n_rollback or _N_AHEAD, _N_AHEAD),
    )
    return {
        "rate": rate,
        "plain": median(plain),
        "drafted": median(each.rate for each in drafted),
        "speedup": speedup,
        "bound": limit,
        "share": speedup / limit,
        "peer": {depth: median(rates) for depth, rates in peers.items()},
    }


def _peers(options: argparse.Namespace, rate: float, stack: ExitStack) -> dict[int, peer.Peer]:
    """Its draft model still runs, so it should be one that costs next to nothing."""
    return peer.start_peers(
        stack, options.peer, options.model, options.draft, options.cpus, depths=options.depths, rate=rate
    )


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench known_text", description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="the target")
    parser.add_argument("--rates", type=listed(float), default=[0.8, 0.0], help="of right draft tokens")
    parser.add_argument("--sequences", type=int, default=1, help="answers at the same time")
    parser.add_argument("--tokens", type=int, default=128, help="of each answer")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpus", help="cores to run on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--peer", type=peer.find, metavar="llama-server=PATH", help="also measure this server"
    )
    parser.add_argument(
        "--draft", type=Path, help="a draft model for llama-server that costs next to nothing"
    )
    parser.add_argument("--depths", type=listed(int), default=[3, 5, 8], help="of llama-server's drafts")
    options = parser.parse_args(arguments)
    if options.peer and not (options.draft and options.cpus and options.sequences == 1):
        parser.error("--peer needs --draft and --cpus, and one sequence")
    return options
