"""Divides the host memory for earlier texts among the models that a lead starts."""

from typing import NamedTuple

from lead.settings.lead_settings import LeadSettings
from shared.free_memory import MEMORY_SHARE
from shared.llama.placement import CPU
from shared.model_files.file_facts import size_if_known

_DRAFTING_SHARE = 1 / 8
"""The share of each small model: its tokens take less memory, and it processes them again quickly."""


class CacheShares(NamedTuple):
    """Shares of --cache-ram in MiB: for the target, for a draft model in the engine, and for the lead's own
    back.
    """

    target: int
    draft: int
    back: int


def cache_shares(settings: LeadSettings, free_bytes: int) -> CacheShares:
    """Return the shares. Together they are a part of `free_bytes`, and at most --cache-ram.

    The memory left by the weights is not known before they are placed: the process that loads them reduces
    its share (`plan_memory`). Only a back does not know the target's weights. Its share assumes that they are
    on the CPU.
    """
    drafting, own_back = settings.drafting, settings.own_back
    free_bytes -= settings.beside_bytes.get(CPU, 0)
    n_mib = _share(settings, free_bytes)
    n_small = int(_DRAFTING_SHARE * n_mib)
    n_draft, n_back = n_small * drafting.is_wanted, n_small * own_back.is_wanted
    n_for_back = int(_DRAFTING_SHARE * _share(settings, free_bytes - size_if_known(settings.source.model)))
    return CacheShares(n_mib - n_draft - n_back, n_draft, min(n_back, n_for_back))


def _share(settings: LeadSettings, free_bytes: int) -> int:
    n_mib = max(0, int(MEMORY_SHARE * free_bytes)) >> 20
    return n_mib if settings.compute.cache_ram < 0 else min(n_mib, settings.compute.cache_ram)
