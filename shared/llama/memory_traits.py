"""Traits of a model's memory, and the interface of the parts that follow its edits.

Imports no native library. Every llama.cpp memory grows at its end. Models differ in how far it can be cut
back:

| memory | how far |
|---|---|
| plain attention | to any length |
| sliding window, not of full size | within the last decode; further only to a checkpoint |
| recurrent, with rollback (`n_rs_seq`) | some tokens of the last decode; further only to a checkpoint |
| recurrent, others | only to a checkpoint |
"""

from dataclasses import dataclass

from shared.llama.span import Pass


@dataclass(frozen=True, slots=True)
class MemoryTraits:
    """The lengths to which a slot's memory can be cut back, and the cost.

    n_rollback: the number of tokens at the end of the last decode that can be removed before the next decode,
    but never all tokens of the last decode; None: any number of tokens at any time. n_step_checkpoints: the
    number of states per slot that can be kept on the device at no cost. equal_lengths: llama.cpp decodes
    spans of different lengths in several ubatches. checkpoint_bytes: the size of a slot's checkpoint.
    """

    n_rollback: int | None = None
    n_step_checkpoints: int = 0
    equal_lengths: bool = False
    checkpoint_bytes: int = 0

    @property
    def can_trim(self) -> bool:
        """True if a slot can be cut back to any length at any time."""
        return self.n_rollback is None

    @property
    def can_speculate(self) -> bool:
        """True if rejected draft tokens can be removed."""
        return self.n_rollback != 0 or self.n_step_checkpoints > 0

    @property
    def replays(self) -> bool:
        """True if the accepted tokens of a partly rejected draft must be decoded again."""
        return self.n_rollback == 0 and self.n_step_checkpoints > 0


PLAIN = MemoryTraits()
"""The traits of models with attention over the whole text."""


class SlotPart:
    """Data that is kept for each slot. Every method is called after the cells were edited."""

    token_bytes = 0
    """The number of bytes that are kept for each token of a stored text."""

    def decoded(self, slot: int, length: int, n_padding: int) -> None:
        """Record that `slot` now has `length` tokens, followed by padding."""

    def computed(self, together: Pass) -> None:
        """Handle a pass that was computed; its results are still in llama.cpp's buffers."""

    def trimmed(self, slot: int, n_keep: int) -> None:
        """Record that `slot` now has at most its first `n_keep` tokens, and no padding."""

    def copied(self, source: int, slot: int, n_keep: int) -> None:
        """Record that `slot`, which was empty, now has the first `n_keep` tokens of `source`."""

    def stored(self, slot: int, key: int, start: int, end: int) -> None:
        """Record that the tokens `start` to `end` of `slot` were stored as `key`."""

    def loaded(self, slot: int, key: int, n_keep: int) -> None:
        """Record that the snapshot `key` was loaded into `slot`, which now has `n_keep` tokens."""

    def forget(self, key: int) -> None:
        """Free the data stored as `key`, if there is any."""

    def clear(self) -> None:
        """Free all stored data."""
