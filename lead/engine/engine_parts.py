"""The parts of an engine process that rings extend, by a function `plug_in` in their modules `in_engine`."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from lead.engine.commands import Submit
from lead.engine.drafters.draft_source import LookupDrafter
from lead.engine.engine import Engine
from lead.engine.load import Load
from lead.engine.loop import Chore
from lead.engine.side_jobs import SideJobs
from shared.llama.model import Model

Lookups = Callable[[Submit], dict[str, LookupDrafter]]


@dataclass(frozen=True, slots=True)
class EngineParts:
    """The parts passed to each ring's `plug_in`.

    lookups: factories of a request's lookup drafters, by source. at_end: contexts that are closed when the
    loop has ended.
    """

    model: Model
    engine: Engine
    load: Load
    side_jobs: SideJobs
    lookups: list[Lookups]
    chores: list[Chore] = field(default_factory=list)
    at_end: ExitStack = field(default_factory=ExitStack)
