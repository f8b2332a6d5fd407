"""`python -m bench mtp`: the target's own heads (MTP), a back on another machine, and both together.

    python -m bench mtp                                     a grown random model with heads
    python -m bench mtp --model qwen3.5.gguf --threads 8    your own

Everything in the lead is real and takes the time that it takes, the heads' decodes, too; only what heads and
back draft is put in place of what they would: tokens that are right as often as asked. The back's machine
and the network are simulated. The ways take turns, text by text.
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import geometric_mean, median
from typing import NamedTuple

from bench import models, report
from bench.options import listed
from bench.timed_engine import DraftingParts, TimedEngine
from lead.engine.calibration import StepTimer
from lead.heads.inline_source import InlineMtp
from lead.simulation.simulated_back import BackSpec
from lead.simulation.text import DraftSkill
from shared import cpus
from shared.errors import ConfigError, ModelLoadError
from shared.heads.hidden_sources import NextnStates
from shared.heads.mtp_heads import has_heads, open_heads
from shared.llama.model import Model
from shared.memory.plan_memory import plan_memory
from shared.settings.model_options import ModelOptions
from shared.step_cost import StepCost

_N_WARM_UP = 256
_REPEATS_OF_A_STEP = 9
_COLUMNS = {
    "heads": ("heads right", ".2f"),
    "back": ("back right", ".2f"),
    "cost": ("draft cost", ".2f"),
    "rtt_ms": ("round trip, ms", "g"),
    "plain": ("neither", ".1f"),
    "with_heads": ("heads", ".1f"),
    "with_back": ("back", ".1f"),
    "with_both": ("both, tokens/s", ".1f"),
    "over_heads": ("over heads", ".3f"),
    "over_back": ("over back", ".3f"),
}


class Situation(NamedTuple):
    """How often heads and back are right. cost: of a back's draft token, in steps of the lead."""

    heads: float
    back: float
    cost: float
    rtt_ms: float

    def ways(self, step_s: float) -> dict[str, DraftingParts]:
        """Who drafts, by the name of the way. Heads and back are different models."""
        heads = DraftSkill(self.heads)
        back = BackSpec(self.cost * step_s, self.rtt_ms / 1000, DraftSkill(self.back, 1))
        return {
            "plain": DraftingParts(),
            "with_heads": DraftingParts(heads),
            "with_back": DraftingParts(backs=(back,)),
            "with_both": DraftingParts(heads, (back,)),
        }


def main(arguments: Sequence[str]) -> None:
    """Print a table, and one line of JSON. Raises ConfigError."""
    options = _parse(arguments)
    if options.cpus:
        cpus.pin(cpus.parse_cpus(options.cpus))
    model, heads = _open(options.model or models.with_heads(), options.threads)
    step_s = _step_seconds(model)
    rows = [
        {**situation._asdict(), **_measure(model, heads, situation.ways(step_s), options)}
        for situation in _situations(options)
    ]
    title = f"{model.vocabulary.info.name}, {model.traits}, a step takes {1000 * step_s:.1f} ms"
    report.show(title, rows, _COLUMNS)
    for name in ("over_heads", "over_back"):
        ratios = [row[name] for row in rows]
        print(f"both {name.replace('_', ' ')}: mean {geometric_mean(ratios):.3f}, least {min(ratios):.3f}")
    report.finish("mtp", rows, options)


def _open(path: Path, n_threads: int) -> tuple[Model, InlineMtp]:
    if not has_heads(path):
        raise ConfigError(f"{path} has no heads for further tokens that can be used")
    options = ModelOptions(threads=n_threads, ctx_size=2048, parallel=1, n_gpu_layers=0)
    try:
        model = Model(plan_memory(path, options, with_heads=True))
        return model, InlineMtp(model, open_heads(model), NextnStates(model), n_max=0, n_slots=1)
    except ModelLoadError as error:
        raise ConfigError(str(error)) from error


def _step_seconds(model: Model) -> float:
    """T(1) of the target."""
    cost = StepCost()
    timer = StepTimer.of_target(model, model.n_vocab)
    timer.calibrate(cost, batch_sizes=(1,), n_repeats=_REPEATS_OF_A_STEP)
    return cost.seconds(1)


def _situations(options: argparse.Namespace) -> Iterator[Situation]:
    axes = product(options.heads, options.backs, options.costs, options.rtts)
    return (Situation(*each) for each in axes)


def _measure(
    model: Model, heads: InlineMtp, ways: dict[str, DraftingParts], options: argparse.Namespace
) -> dict[str, float]:
    """Medians of tokens per second by way, and of the ratios within a turn."""
    engines = {name: TimedEngine(model, heads, parts) for name, parts in ways.items()}
    for engine in engines.values():
        engine.calibrate()
        engine.write(0, _N_WARM_UP)
    turns = [
        {name: engine.write(number, options.tokens) for name, engine in engines.items()}
        for number in range(1, options.repeats + 1)
    ]
    rates = {name: median(turn[name] for turn in turns) for name in engines}
    return rates | {
        "over_heads": median(turn["with_both"] / turn["with_heads"] for turn in turns),
        "over_back": median(turn["with_both"] / turn["with_back"] for turn in turns),
    }


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench mtp", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    report.add_options(parser)
    parser.add_argument("--model", type=Path, help="with heads (default: a random one)")
    parser.add_argument("--heads", type=listed(float), default=[0.6, 0.8], help="how often they are right")
    parser.add_argument("--backs", type=listed(float), default=[0.6, 0.8], help="how often a back is right")
    parser.add_argument(
        "--costs", type=listed(float), default=[0.05, 0.3], help="of a back's draft token, in steps"
    )
    parser.add_argument("--rtts", type=listed(float), default=[1.0, 20.0], help="round trips in ms")
    parser.add_argument("--tokens", type=int, default=192, help="of a text")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpus", help="cores to run on")
    quick = {"heads": [0.8], "backs": [0.8], "costs": [0.05], "rtts": [1.0], "repeats": 1, "tokens": 64}
    return report.parse(parser, arguments, quick)
