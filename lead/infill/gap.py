"""The parts of a prompt for `/infill`."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lead.tokenizer.jobs import MadePrompt


@dataclass(frozen=True, slots=True)
class Gap(MadePrompt):
    """The texts around a gap. extra: names and texts of other files. n_ctx: the context size in tokens."""

    prefix: str
    suffix: str
    prompt: str
    extra: Sequence[tuple[str, str]]
    n_ctx: int
    n_predict: int = -1
    spm: bool = False

    def tokens(self, vocabulary: Any) -> "array[int]":
        from lead.infill.infill import infill_prompt  # noqa: PLC0415 - the front has no llama.cpp

        return infill_prompt(self, vocabulary)
