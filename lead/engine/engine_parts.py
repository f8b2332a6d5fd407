"""The parts of an engine process, for rings that plug something in: a seam, their modules `in_engine`."""

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
    """A module `in_engine` has a function `plug_in`, which takes these and adds what its ring does.

    lookups: the sources of drafts of a request, by name. at_end: closed when the loop has ended.
    """

    model: Model
    engine: Engine
    load: Load
    side_jobs: SideJobs
    lookups: list[Lookups]
    chores: list[Chore] = field(default_factory=list)
    at_end: ExitStack = field(default_factory=ExitStack)
