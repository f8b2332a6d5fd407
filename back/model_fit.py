"""How the draft model is loaded: with as many side branches as it has memory for."""

from pathlib import Path

from back.settings import BackSettings
from shared.llama.memory_plan import MemoryPlan
from shared.memory.model_outline import ModelOutline
from shared.memory.plan_memory import plan_memory

_MAX_RECURRENT_BRANCHES = 3
"""Each side branch has recurrent states of its own, as many as tokens can be taken back."""


def fitted(settings: BackSettings, model: Path) -> BackSettings:
    """With fewer side branches if the model is recurrent; raises ModelLoadError."""
    with ModelOutline.load(model, settings.model_options) as outline:
        n_max = _MAX_RECURRENT_BRANCHES if outline.is_recurrent else settings.n_branches
    return settings.model_copy(update={"n_branches": min(settings.n_branches, n_max)})


def plan_draft(settings: BackSettings, model: Path) -> MemoryPlan:
    """Of `fitted` settings; raises ModelLoadError."""
    return plan_memory(model, settings.model_options, settings.n_slots, settings.n_step_checkpoints)
