"""The engine's command to load models, for checks before a lead starts. Loads llama.cpp."""

import contextlib
from pathlib import Path

from lead.engine.draft_loading import place_draft_model
from lead.engine.load import Load
from lead.settings.cache_shares import cache_shares
from lead.settings.draft_model import DraftModelOptions
from lead.settings.lead_settings import LeadSettings
from shared.errors import ConfigError
from shared.free_memory import free_memory


def placed_load(settings: LeadSettings, model: Path) -> Load:
    """Return the engine's command, with the placement of a draft model that is present locally.

    Problems with the draft model are ignored here; other checks report them.
    """
    source = settings.source.model_copy(update={"offline": True})
    drafting = settings.drafting
    with contextlib.suppress(ConfigError):
        if not (drafting.is_wanted and drafting.source(source).pending_conversion()):
            settings = settings.model_copy(update={"drafting": drafting.located(source)})
            load = settings.load_command(model, cache_shares(settings, free_memory()).target)
            return place_draft_model(load)
    alone = settings.model_copy(update={"drafting": DraftModelOptions(mtp=drafting.mtp)})
    return place_draft_model(alone.load_command(model, cache_shares(settings, free_memory()).target))
