"""What clients do to the texts of idle slots (`POST /slots/N`), in the engine's records."""

from lead.engine.slot_manager import SlotManager
from shared.errors import RequestError
from shared.saved_text import SavedText
from shared.slot_cache import StoredText


class IdleSlots:
    def __init__(self, slots: SlotManager) -> None:
        self._slots = slots

    def stored_text(self, index: int) -> StoredText | None:
        """What a slot held last, in host memory; None: not yet, ask again after the next step.

        Raises RequestError, UnavailableError.
        """
        slot = self._slots.idle_slot(index)
        tokens = slot.cache.tokens or slot.moved
        if not tokens:
            raise RequestError(f"slot {index} holds no text", "id_slot")
        if slot.cache.owner is None:
            raise RequestError(f"slot {index} holds a private text, which is never written", "id_slot")
        if slot.cache.tokens:
            if not self._slots.texts.can_store(slot.cache):
                return None
            n_left = self._slots.texts.store(slot.cache, n_least=1)
            if n_left is None:
                raise RequestError("there is no room for its text in host memory (--cache-ram)", "id_slot")
            if n_left:
                return None
        text = self._slots.texts.holding(tokens, slot.cache.owner)
        if text is None or (text.place == "disk" and not self._slots.texts.may_fetch(text)):
            raise RequestError("its text has given way to others in host memory (--cache-ram)", "id_slot")
        if text.place == "disk":
            self._slots.texts.fetch(text)
        return text if text.place == "memory" else None

    def expect_text(self, index: int, saved: SavedText) -> StoredText:
        """A text that a slot is to hold, and the caller reads; raises RequestError, UnavailableError."""
        self._slots.idle_slot(index)
        if len(saved.tokens) > self._slots.n_ctx:
            raise RequestError(
                f"its text has {len(saved.tokens)} tokens; the context has {self._slots.n_ctx}"
            )
        if (text := self._slots.texts.expect(saved)) is None:
            raise RequestError("there is no room for its text in host memory (--cache-ram)")
        return text

    def give_text(self, index: int, text: StoredText) -> bool:
        """From now on a slot stands for `text`, in host memory; False: not yet, its own is stored before.

        Raises UnavailableError.
        """
        slot = self._slots.idle_slot(index)
        if self._slots.store_before_loss(slot.cache):
            return False
        slot.cache.keep(0)
        slot.moved, slot.cache.owner = list(text.tokens), text.owner
        return True

    def erase(self, index: int) -> int:
        """Forget what a slot held last; how many tokens that were. Raises RequestError, UnavailableError."""
        slot = self._slots.idle_slot(index)
        tokens = list(slot.cache.tokens or slot.moved)
        text = self._slots.texts.holding(tokens, slot.cache.owner) if tokens else None
        if text and text.tokens == tokens:
            self._slots.texts.drop(text)
        slot.moved = []
        slot.cache.keep(0)
        return len(tokens)
