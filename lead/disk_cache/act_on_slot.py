"""Asks the engine to save, restore or erase the text of a slot; `SlotActions` does it."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from lead.engine.question import EngineQuestion

SlotAction = Literal["save", "restore", "erase"]


class SlotActed(BaseModel, frozen=True):
    """The result of an action: the number of tokens, and the bytes of the file."""

    n_tokens: int = 0
    n_bytes: int = 0


class ActOnSlot(EngineQuestion[SlotActed], frozen=True):
    """Save the contents of a slot to the file `path`, restore them from there, or erase them.

    keep_for: as in `Submit`, for restored contents.
    """

    action: SlotAction
    slot: int
    path: Path = Path()
    keep_for: str | None = None
