"""The engine process; `lead.engine.__main__` is the way in."""

import logging
import socket
import sys

from lead.engine.calibration import calibrate
from lead.engine.commands import NGRAM, PREDICTION, Load, Submit
from lead.engine.drafters.ngram import NgramDrafter
from lead.engine.drafters.prediction import PredictionDrafter
from lead.engine.events import LoadFailed, Ready
from lead.engine.loop import Loop
from lead.engine.pipe import EnginePipe
from lead.engine.scheduler import Limits, Scheduler
from lead.engine.speculation.batching import Equal, Free
from lead.engine.speculation.planner import Planner
from lead.engine.speculation.speculation import OwnSource, Speculation
from shared.errors import ModelLoadError
from shared.llama.chain import make_sampler
from shared.llama.exactness import warm_up_and_measure
from shared.llama.model import Model
from shared.logs import configure_logging
from shared.sampling.sampler import Sampler

log = logging.getLogger("engine")

_NGRAM_BITS = 14
"""A quarter of a megabyte per request, those that wait included; repetitions further back are forgotten."""


def main() -> None:
    """Load what the first command says, then serve until the front closes the pipe."""
    descriptor, level = sys.argv[1:3]
    configure_logging(level, as_json="json" in sys.argv[3:])  # type: ignore[arg-type]  # the front passes on its own valid level
    pipe = EnginePipe(socket.socket(fileno=int(descriptor)))
    commands = pipe.drain(None)
    if not commands:
        return
    load, *early = commands
    assert isinstance(load, Load) and not early, "the front sends Load, then waits for Ready"  # noqa: PT018 - one claim
    try:
        model = Model(load.model, load.options)
    except ModelLoadError as error:
        pipe.send(LoadFailed(reason=str(error)))
        sys.exit(1)
    _serve(model, load, pipe)


def _serve(model: Model, load: Load, pipe: EnginePipe) -> None:
    vocabulary = model.vocabulary
    exactness = warm_up_and_measure(model)
    limits = Limits(
        n_slots=load.options.parallel,
        n_ctx=model.n_ctx - exactness.pads,  # the padding token takes a cell for the time of its step
        n_ctx_sequence=min(model.n_ctx_slot, vocabulary.info.n_ctx_train),
        n_batch=model.n_batch,
        can_trim=model.can_trim,
        n_ctx_slot=None if model.kv_unified else model.n_ctx_slot,
    )

    def sampler_for(request: Submit) -> Sampler:
        return make_sampler(request.sampling, vocabulary, request.tokens)

    planner = Planner(load.policy, load.depth, Free() if model.kv_unified else Equal())
    speculation = Speculation(planner, vocabulary.end_tokens, lambda request: _own_sources(request, load))
    scheduler = Scheduler(limits, speculation, sampler_for, vocabulary.end_tokens)
    if not model.can_trim:
        log.warning("this model cannot take tokens back (recurrent or hybrid): served without speculation")
    pipe.send(
        Ready(
            n_ctx=limits.n_ctx,
            n_ctx_sequence=limits.n_ctx_sequence,
            n_slots=limits.n_slots,
            speculates=limits.can_trim,
            exact=exactness.exact,
        )
    )
    if limits.can_trim and load.calibrate:
        calibrate(model, planner.cost, interrupted=lambda: pipe.readable)
    Loop(model, scheduler, pipe).run()


def _own_sources(request: Submit, load: Load) -> dict[str, OwnSource]:
    sources: dict[str, OwnSource] = {}
    if load.ngram:
        sources[NGRAM] = NgramDrafter(_NGRAM_BITS)
    if request.prediction:
        sources[PREDICTION] = PredictionDrafter(request.prediction, len(request.tokens))
    return sources
