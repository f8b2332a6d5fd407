"""An inline source that drafts with MTP heads of the target, or with an EAGLE-3 drafter."""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lead.engine.calibration import StepTimer
from lead.engine.inline_sources import calibrate
from lead.engine.load import Load
from lead.heads.mtp_drafter import MtpDrafter
from shared.errors import ModelLoadError
from shared.heads.eagle_heads import open_eagle
from shared.heads.hidden_sources import NextnStates
from shared.heads.hidden_states import HiddenStates
from shared.heads.mtp_heads import MtpHeads, has_heads, is_heads_file, open_heads
from shared.heads.mtp_span import MtpSpan
from shared.llama.model import Model
from shared.model_files.file_kind import is_eagle_file
from shared.sampling.factory import drafting_sampler
from shared.sampling.grammar_budget import GrammarBudget
from shared.sampling.remote_grammar import GrammarServer
from shared.step_cost import StepCost
from shared.terminal import size_text


@dataclass(frozen=True, slots=True)
class InlineMtp:
    """Loaded heads that read the hidden `states` of the target `model`, for `n_slots` sequences."""

    model: Model
    heads: MtpHeads
    states: HiddenStates
    n_max: int
    n_slots: int
    reads_target = True

    @property
    def source(self) -> str:
        return self.heads.source

    @property
    def title(self) -> str:
        return self.heads.title

    def drafter(self, grammars: GrammarServer, budget: GrammarBudget) -> MtpDrafter:
        """Return the drafter with these heads, for drafts of up to `n_max` tokens."""
        vocabulary = self.model.vocabulary
        make_sampler = functools.partial(drafting_sampler, vocabulary, grammars)
        return MtpDrafter(
            self.heads, self.states, make_sampler, vocabulary.end_tokens, n_max=self.n_max, budget=budget
        )

    def calibrate(self, cost: StepCost, clock: Callable[[], float] = time.monotonic) -> None:
        row = np.zeros(self.heads.n_embd, np.float32)

        def decode(tokens: list[int]) -> None:
            self.heads.decode([MtpSpan(0, 0, tokens, [row] * len(tokens))])

        timer = StepTimer(
            decode,
            lambda: self.heads.trim(0, 0),
            self.heads.n_vocab,
            clock,
            is_offloaded=self.model.is_offloaded,
        )
        calibrate(timer, cost, self.heads.n_batch)

    def describe(self, token_seconds: float) -> str:
        return (
            f"drafting with {self.title}, {1000 * token_seconds:.2f} ms for a token; memory: "
            f"{size_text(self.heads.weights_size)} for weights, {self.heads.memory_size}, at most "
            f"{size_text(self.n_slots * self.states.n_bytes)} for hidden states"
        )


class PlannedMtp:
    """MTP heads in the target's file, or in their own file `path`."""

    def __init__(self, load: Load, path: Path | None = None) -> None:
        self.load_mtp = has_heads(load.model)
        self.is_draft_model = path is not None
        self._load, self._path = load, path
        self._states: NextnStates | None = None

    def attach(self, target: Model) -> None:
        self._states = NextnStates(target)

    def open(self, target: Model) -> InlineMtp:
        assert self._states
        heads = open_heads(target, self._path)
        return InlineMtp(target, heads, self._states, self._load.max_mtp, self._load.options.parallel)


class PlannedEagle:
    """An EAGLE-3 drafter in the file `path`."""

    load_mtp = False
    is_draft_model = True

    def __init__(self, load: Load, path: Path) -> None:
        self._load, self._path = load, path

    def attach(self, _target: Model) -> None:
        """Do nothing: `open` reads from the drafter's file which layers to record."""

    def open(self, target: Model) -> InlineMtp:
        heads, states = open_eagle(target, self._path)
        return InlineMtp(target, heads, states, self._load.max_mtp, self._load.options.parallel)


def plan_source(load: Load) -> PlannedMtp | PlannedEagle | None:
    """Return the planned heads, or None; raises ModelLoadError if heads are required and missing."""
    if load.draft:
        path = load.draft.model
        if is_eagle_file(path):
            return PlannedEagle(load, path)
        return PlannedMtp(load, path) if is_heads_file(path) else None
    if load.mtp == "off" or load.policy == "off":
        return None
    if has_heads(load.model):
        return PlannedMtp(load)
    if load.mtp == "on":
        raise ModelLoadError(f"{load.model} has no usable MTP heads. Use --mtp off")
    return None
