"""The question for something to be done with what a slot holds; `SlotActions` does it."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from lead.engine.question import EngineQuestion

SlotAction = Literal["save", "restore", "erase"]


class SlotActed(BaseModel, frozen=True):
    """It is done, with so many tokens, and a file of so many bytes."""

    n_tokens: int = 0
    n_bytes: int = 0


class ActOnSlot(EngineQuestion[SlotActed], frozen=True):
    """Save what a slot holds as the file `path`, restore it from there, or erase it.

    keep_for: as in `Submit`, for what is restored.
    """

    action: SlotAction
    slot: int
    path: Path = Path()
    keep_for: str | None = None
