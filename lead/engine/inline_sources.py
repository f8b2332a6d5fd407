"""Sources that draft in the engine and take its time: a draft model, or a ring's.

A ring plugs one in at the seam `inline_source`, a module with a function `plan_source`.
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
"""Tokens in the steps that are timed: drafting, and reading what it has not seen yet."""
_MAX_SECONDS = 3.0


class InlineSource(Protocol):
    """A loaded source, which makes the drafter of the engine."""

    @property
    def source(self) -> str:
        """The name of the source of its drafts."""

    @property
    def title(self) -> str:
        """A description for people."""

    @property
    def reads_target(self) -> bool:
        """True if it makes the target's passes compute and record more."""

    def drafter(self, grammars: GrammarServer, budget: GrammarBudget) -> InlineDrafter[Any]:
        """The drafter, for as many sequences as there are slots."""

    def calibrate(self, cost: StepCost, clock: Callable[[], float] = time.monotonic) -> None:
        """A first T(n) of it, known before it is used; its slot 0 is empty, and is left empty."""

    def describe(self, token_seconds: float) -> str:
        """The line of the log at the start."""


class PlannedSource(Protocol):
    """A source that a ring will open, before the target is loaded.

    load_mtp: the target is to be loaded with its layers for further tokens. is_draft_model: it is the file
    that `Load.draft` names, which then is no draft model.
    """

    load_mtp: bool
    is_draft_model: bool

    def attach(self, target: Model) -> None:
        """The target has been loaded, and nothing decoded: have it record what this reads."""

    def open(self, target: Model) -> InlineSource:
        """After `attach`; raises ModelLoadError."""


def planned_source(load: Load) -> PlannedSource | None:
    """The ring's that is to draft; raises ModelLoadError if it should (`--mtp on`), and cannot."""
    rings = list(plugged(RINGS, "inline_source"))
    if load.mtp == "on" and not rings:
        raise ModelLoadError("--mtp on: the part of the lead that drafts with heads is not installed")
    return next((found for ring in rings if (found := ring.plan_source(load))), None)


def calibrate(timer: StepTimer, cost: StepCost, n_batch: int) -> None:
    """T(n) of a drafter's decodes, of up to `n_batch` tokens."""
    batch_sizes = [size for size in (*[1] * _REPEATS, *_BATCH_SIZES) if size <= n_batch]
    timer.calibrate(cost, batch_sizes=batch_sizes, n_repeats=1, max_seconds=_MAX_SECONDS)
