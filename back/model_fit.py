"""Memory plan of a back's draft model: as many side branches as fit into memory."""

from pathlib import Path

from back.settings import BackSettings
from shared.llama.memory_plan import MemoryPlan
from shared.memory.model_outline import ModelOutline
from shared.memory.plan_memory import plan_memory

_MAX_RECURRENT_BRANCHES = 3
"""Each side branch has recurrent states of its own, as many as tokens can be taken back."""


def fitted(settings: BackSettings, model: Path) -> BackSettings:
    """The settings, with fewer side branches if the model is recurrent; raises ModelLoadError."""
    with ModelOutline.load(model, settings.model_options) as outline:
        n_max = _MAX_RECURRENT_BRANCHES if outline.is_recurrent else settings.n_branches
    return settings.model_copy(update={"n_branches": min(settings.n_branches, n_max)})


def plan_draft(settings: BackSettings, model: Path) -> MemoryPlan:
    """The memory plan for settings that `fitted` returned; raises ModelLoadError."""
    return plan_memory(model, settings.model_options, settings.n_slots, settings.n_step_checkpoints)
