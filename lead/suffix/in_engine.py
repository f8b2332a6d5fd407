"""The ring's module for the seam `in_engine`: the source "suffix", unless `--suffix-memory 0`."""

import time

from lead.engine.commands import SUFFIX, Submit
from lead.engine.drafters.draft_source import LookupDrafter
from lead.engine.engine_parts import EngineParts
from lead.suffix.seen_texts import SeenTexts
from lead.suffix.suffix_drafter import SuffixDrafter


def plug_in(parts: EngineParts) -> None:
    load = parts.load
    if not load.suffix_memory:
        return
    seen = SeenTexts(load.suffix_memory << 20, load.suffix_max_age, time.monotonic)

    def lookups(request: Submit) -> dict[str, LookupDrafter]:
        return {SUFFIX: SuffixDrafter(seen, request.owner)} if request.owner is not None else {}

    parts.lookups.append(lookups)
    parts.chores.append(seen)
