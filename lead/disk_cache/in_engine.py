"""The ring's module for the seam `in_engine`: `--cache-disk`, and slots saved on a client's request."""

import logging

from lead.disk_cache.act_on_slot import ActOnSlot
from lead.disk_cache.text_files import TextFiles
from lead.disk_cache.text_keeper import SlotActions, TextKeeper
from lead.engine.engine_parts import EngineParts
from lead.engine.load import Load
from shared.llama.model import Model
from shared.llama.start_key import StoredKind, start_key

log = logging.getLogger("engine")

_VERSION = 2
"""Increase this number when earlier texts on disk would be misread."""


def plug_in(parts: EngineParts) -> None:
    model = parts.model
    memory = model if model.prompt_cache.n_bytes else None
    parts.side_jobs.register(ActOnSlot, SlotActions(parts.engine, memory, text_key(model, parts.load)).act)
    if keeper := _keeper(parts):
        parts.chores.append(parts.at_end.enter_context(keeper))


def _keeper(parts: EngineParts) -> TextKeeper | None:
    """Return the keeper of texts on disk; None without --cache-disk, or if the folder cannot be used, which
    is logged.
    """
    model, load = parts.model, parts.load
    if load.cache_disk is None:
        return None
    if not model.prompt_cache.n_bytes:
        log.warning("cache on disk is off: this model cannot keep texts in host memory")
        return None
    try:
        files = TextFiles(load.cache_disk, text_key(model, load), load.cache_disk_size << 20)
        return TextKeeper(parts.engine, files, model)
    except OSError as error:
        log.warning("cache on disk is off: %s", error)
        return None


def text_key(model: Model, load: Load) -> str:
    """Return a key of everything that determines the contents of a text on disk, and its format."""
    return start_key(
        StoredKind.TEXTS,
        model.facts.files,
        load.options,
        version=_VERSION,
        batch_sizes=model.batch_sizes,
        traits=model.traits,
        own_cells=not model.plan.context.kv_unified,
        n_part=model.prompt_cache.n_part,
        n_ctx_of_rope=model.facts.n_ctx_of_rope,
        uses_flash_attention=model.facts.uses_flash_attention,
    )
