"""The memory plan of a back's draft model, with as many side branches as fit into memory."""

from pathlib import Path

from back.settings import BackSettings
from shared.llama.memory_plan import MemoryPlan
from shared.memory.model_outline import ModelOutline
from shared.memory.plan_memory import plan_memory

_MAX_RECURRENT_BRANCHES = 3
"""The maximum number of side branches of a recurrent model: each has a state for every token that it can take
back.
"""


def fitted(settings: BackSettings, model: Path) -> BackSettings:
    """Return the settings, with fewer side branches if the model is recurrent. Raises ModelLoadError."""
    with ModelOutline.load(model, settings.model_options) as outline:
        n_max = _MAX_RECURRENT_BRANCHES if outline.is_recurrent else settings.n_branches
    return settings.model_copy(update={"n_branches": min(settings.n_branches, n_max)})


def plan_draft(settings: BackSettings, model: Path) -> MemoryPlan:
    """Return the memory plan for settings that `fitted` returned. Raises ModelLoadError."""
    return plan_memory(model, settings.model_options, settings.n_slots, settings.n_step_checkpoints)
