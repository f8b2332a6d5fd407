"""The parts of an engine process that rings extend with the function `plug_in` of their `in_engine`
modules.
"""

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
    """The parts of the engine process, which each ring's `plug_in` receives.

    lookups: functions that make a request's lookup drafters, by source. at_end: contexts to close when the
    loop has ended.
    """

    model: Model
    engine: Engine
    load: Load
    side_jobs: SideJobs
    lookups: list[Lookups]
    chores: list[Chore] = field(default_factory=list)
    at_end: ExitStack = field(default_factory=ExitStack)
