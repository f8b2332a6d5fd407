"""Draft sources that run inside the engine and take its time: a draft model, or the source of a ring.

A ring plugs in at the seam `inline_source` with a module that has a function `plan_source`.
"""

import time
from collections.abc import Callable
from typing import Any, Protocol

from lead.engine.calibration import StepTimer
from lead.engine.drafters.draft_source import InlineDrafter
from lead.engine.load import Load
from lead.rings.table import RINGS
from shared.errors import ModelLoadError
from shared.llama.model import Model
from shared.sampling.grammar_budget import GrammarBudget
from shared.sampling.remote_grammar import GrammarServer
from shared.seams import plugged
from shared.step_cost import StepCost

_REPEATS = 5
_BATCH_SIZES = (1, 2, 4, 8, 32, 128)
"""The batch sizes to time: small ones for drafting, large ones for reading text that the source missed."""
_MAX_SECONDS = 3.0


class InlineSource(Protocol):
    """A loaded source, which makes the engine's inline drafter."""

    @property
    def source(self) -> str:
        """The source's name, which its draft tokens carry."""

    @property
    def title(self) -> str:
        """The source's description for people."""

    @property
    def reads_target(self) -> bool:
        """True if the target's passes must compute and record additional outputs for this source."""

    def drafter(self, grammars: GrammarServer, budget: GrammarBudget) -> InlineDrafter[Any]:
        """Make the drafter, with room for the sequences of all slots."""

    def calibrate(self, cost: StepCost, clock: Callable[[], float] = time.monotonic) -> None:
        """Measure a first T(n) of the source, for `cost`; slot 0 is empty, and is left empty."""

    def describe(self, token_seconds: float) -> str:
        """Return the log line for the start. token_seconds: the time to draft a token."""


class PlannedSource(Protocol):
    """A source of a ring, planned before the target is loaded.

    load_mtp: load the target with its MTP layers. is_draft_model: the source opens the file in `Load.draft`,
    which is then not loaded as a draft model.
    """

    load_mtp: bool
    is_draft_model: bool

    def attach(self, target: Model) -> None:
        """Make the loaded target record the outputs that the source reads.

        The target has decoded nothing yet.
        """

    def open(self, target: Model) -> InlineSource:
        """Open the source; call after `attach`. Raises ModelLoadError."""


def planned_source(load: Load) -> PlannedSource | None:
    """Return the source of the first ring that plans one for this load; None: no ring does.

    Raises ModelLoadError if a source is required (`--mtp on`) and impossible.
    """
    rings = list(plugged(RINGS, "inline_source"))
    if load.mtp == "on" and not rings:
        raise ModelLoadError("--mtp on: this lead was installed without support for MTP heads. Use --mtp off")
    return next((found for ring in rings if (found := ring.plan_source(load))), None)


def calibrate(timer: StepTimer, cost: StepCost, n_batch: int) -> None:
    """Measure T(n) of a drafter's decodes of up to `n_batch` tokens, for `cost`."""
    batch_sizes = [size for size in (*[1] * _REPEATS, *_BATCH_SIZES) if size <= n_batch]
    timer.calibrate(cost, batch_sizes=batch_sizes, n_repeats=1, max_seconds=_MAX_SECONDS)
