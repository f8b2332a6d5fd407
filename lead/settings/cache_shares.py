"""How much of earlier texts each model that one lead starts may keep in host memory."""

from pathlib import Path
from typing import NamedTuple

from lead.settings.lead_settings import LeadSettings
from shared.errors import ModelLoadError
from shared.llama.memory_plan import MEMORY_SHARE
from shared.models.file_kind import parts_of

_DRAFTING_SHARE = 1 / 8
"""The share of each small model: its tokens take less memory, and are soon read again."""


class CacheShares(NamedTuple):
    """In MiB: of the target, of a draft model in the engine, of the back that the lead starts."""

    target: int
    draft: int
    back: int


def cache_shares(settings: LeadSettings, free_bytes: int) -> CacheShares:
    """Together a part of the `free_bytes` that their weights leave, and at most --cache-ram.

    Mapped weights have to be subtracted: the system counts them as free memory, as it can read them again.
    """
    drafting, own_back = settings.drafting, settings.own_back
    models = {settings.source.model, drafting.draft_model, own_back.back}
    n_weights = sum(_size(path) for path in models if path)
    n_mib = max(0, int(MEMORY_SHARE * (free_bytes - n_weights))) >> 20
    if settings.compute.cache_ram >= 0:
        n_mib = min(n_mib, settings.compute.cache_ram)
    n_small = int(_DRAFTING_SHARE * n_mib)
    n_draft, n_back = n_small * drafting.is_wanted, n_small * own_back.is_wanted
    return CacheShares(n_mib - n_draft - n_back, n_draft, n_back)


def _size(path: Path) -> int:
    try:
        return sum(part.stat().st_size for part in parts_of(path))
    except (ModelLoadError, OSError):  # whoever loads it says so
        return 0
