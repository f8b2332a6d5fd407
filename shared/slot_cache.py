"""The record of one text: in a slot of a model's memory, in host memory, or on disk."""

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self

from pydantic import BaseModel, NonNegativeInt

from shared.cache_edits import CacheEdit, Forget, Restore, Snapshot, Store, Trim
from shared.image_span import image_start
from shared.llama.memory_traits import PLAIN, MemoryTraits


class SavedPart(BaseModel, frozen=True):
    """A `Snapshot` on disk: `size` bytes in `file`, or after the manifest if `file` is empty.

    digest: the digest of these bytes, in hexadecimal.
    """

    kind: Literal["state", "text"]
    start: NonNegativeInt
    end: NonNegativeInt
    file: str
    size: NonNegativeInt
    digest: str

    @classmethod
    def of(cls, snapshot: Snapshot, file: str, size: int, digest: str) -> Self:
        assert snapshot.kind != "device"
        return cls(
            kind=snapshot.kind, start=snapshot.start, end=snapshot.end, file=file, size=size, digest=digest
        )

    def snapshot(self, key: int) -> Snapshot:
        """Return the snapshot, with `key` in host memory."""
        return Snapshot(self.kind, key, self.end, self.start)

    def holds(self, snapshot: Snapshot) -> bool:
        """Return whether this is the stored form of `snapshot`, if both are of the same text."""
        return (self.kind, self.start, self.end) == (snapshot.kind, snapshot.start, snapshot.end)


class SavedText(BaseModel, frozen=True):
    """The manifest of a text on disk (`--cache-disk`, `--slot-save-path`).

    tokens, n_prefill: as in `StoredText`. owner: the only owner whose sequences may use it.
    """

    name: str
    owner: str
    tokens: list[int]
    n_prefill: int
    parts: tuple[SavedPart, ...]


@dataclass(eq=False, slots=True)
class StoredText:
    """A text in host memory or on disk. parts: snapshots that cover all its tokens, in order.

    n_prefill: the number of its first tokens that were decoded as a prompt. checkpoints: as in `SlotCache`.
    owner: the only owner whose sequences may reuse it from disk; None: it must not be written to disk. saved:
    its record on disk, which may be of an earlier or longer state of the text. place: in host memory, only on
    disk, or being read from disk ("coming"). is_used: stored or used since the last `TextStore.pop_used`.
    is_left_out: it gets no room on disk until it is used again.
    """

    tokens: list[int] = field(default_factory=list)
    n_prefill: int = 0
    checkpoints: dict[int, Snapshot] = field(default_factory=dict)
    parts: list[Snapshot] = field(default_factory=list)
    owner: str | None = None
    saved: SavedText | None = None
    place: Literal["memory", "disk", "coming"] = "memory"
    is_used: bool = False
    is_left_out: bool = False

    @property
    def is_saved(self) -> bool:
        """True if the whole text is on disk."""
        if self.saved is None or self.saved.owner != self.owner:
            return False
        return len(self.saved.tokens) >= len(self.tokens)

    @classmethod
    def on_disk(cls, saved: SavedText) -> Self:
        """Return the text that `saved` describes; its snapshots have no keys yet."""
        text = cls(list(saved.tokens), saved.n_prefill, owner=saved.owner, saved=saved, place="disk")
        text.describe_saved(itertools.repeat(0))
        return text

    def describe_saved(self, keys: Iterable[int]) -> None:
        """Replace the snapshots with the snapshots on disk, which get these `keys`."""
        assert self.saved
        snapshots = [part.snapshot(key) for part, key in zip(self.saved.parts, keys, strict=False)]
        self.parts = [each for each in snapshots if each.kind == "text"]
        self.checkpoints = {each.end: each for each in snapshots if each.kind == "state"}

    def to_save(self, name: str) -> SavedText:
        """Return the record to write, without the parts. It is not validated, because that takes long."""
        return SavedText.model_construct(
            name=name, owner=self.owner or "", tokens=list(self.tokens), n_prefill=self.n_prefill, parts=()
        )

    def reachable(self, n_keep: int, *, can_trim: bool) -> int:
        """Return the maximum number of tokens, up to `n_keep`, that a slot can get.

        can_trim: the slot can be cut back to any length.
        """
        return cut_length(self.tokens, n_keep, None if can_trim else (len(self.tokens), *self.checkpoints))

    def n_cells(self, n_keep: int) -> int:
        """Return the number of cells that loading `n_keep` tokens occupies, before the last part is cut."""
        return next((part.end for part in self.parts if part.end >= n_keep), len(self.tokens))

    @property
    def snapshots(self) -> list[Snapshot]:
        """All snapshots, the parts first."""
        return [*self.parts, *self.checkpoints.values()]

    @property
    def keys(self) -> Iterable[int]:
        """The keys of all snapshots in host memory."""
        return () if self.place == "disk" else (snapshot.key for snapshot in self.snapshots)


@dataclass(slots=True)
class SlotCache:
    """The text in a slot: `tokens` are valid, at positions 0, 1, …

        valid in the cache       [0 ........ len(tokens))
        physically in the cache  [0 .............. n_physical)

    Tokens that are not valid are removed from the native cache later. `keep` removes more than requested if
    the memory cannot be cut back precisely. saved, checkpoints: earlier states of the slot, on the device and
    in host memory, by number of tokens. n_prefill: the number of first tokens that were decoded as a prompt.
    cuts: lengths at which prompts of later turns may depart from this text. loading: the text whose first
    `n_loading` tokens the slot is getting, perhaps over several steps.
    """

    index: int
    traits: MemoryTraits = PLAIN
    tokens: list[int] = field(default_factory=list)
    n_physical: int = 0
    saved: dict[int, Snapshot] = field(default_factory=dict)
    checkpoints: dict[int, Snapshot] = field(default_factory=dict)
    n_prefill: int = 0
    cuts: tuple[int, ...] = ()
    loading: StoredText | None = None
    n_loading: int = 0
    owner: str | None = None  # of the last text; see `StoredText`
    _n_last: int = 0  # tokens of the last decode, while no other pass has followed
    _edits: list[CacheEdit] = field(default_factory=list)

    def __len__(self) -> int:
        """Return the number of valid tokens."""
        return len(self.tokens)

    @property
    def n_cells(self) -> int:
        """The number of cells of the valid tokens, or of cells reserved for a text that is being loaded."""
        if self.loading is None:
            return len(self.tokens)
        return max(len(self.tokens), self.loading.n_cells(self.n_loading))

    def keep(self, n_keep: int) -> None:
        """Keep the first `n_keep` tokens valid, or as many of them as the cache can be cut back to
        (`reachable`).
        """
        del self.tokens[self.reachable(n_keep) :]

    def reachable(self, n_keep: int, held: Sequence[int] | None = None) -> int:
        """Return the largest number of tokens, up to `n_keep`, to which the cache can be cut back.

        held: the tokens in the native cache, if it has more tokens than the valid ones.
        """
        tokens = self.tokens if held is None else held
        n = cut_length(tokens, min(n_keep, self.n_physical))
        if n == self.n_physical or self._can_trim_to(n):
            return n
        return cut_length(tokens, n, (*self.saved, *self.checkpoints))

    def can_fork(self, n_keep: int) -> bool:
        """Return whether another slot can get the first `n_keep` valid tokens now."""
        if n_keep > len(self.tokens):
            return False
        return self.traits.can_trim or n_keep in self.saved or n_keep == self.n_physical

    def restore(self, tokens: list[int]) -> None:
        """Make `tokens`, which were invalidated but not removed yet, valid again."""
        assert len(tokens) <= self.n_physical, f"slot {self.index} does not hold {len(tokens)} tokens"
        self.tokens = tokens

    def add(self, tokens: Sequence[int], *, can_roll_back: bool = True) -> None:
        """Append `tokens` to the valid tokens; the edits must have been applied before.

        can_roll_back: the tokens were decoded, and no pass over other slots followed in the same decode.
        """
        assert self.n_physical == len(self.tokens), f"slot {self.index} was not trimmed before it grows"
        self.tokens.extend(tokens)
        self.n_physical = len(self.tokens)
        self._n_last = len(tokens) if can_roll_back else 0

    @property
    def can_store(self) -> bool:
        """True if cutting the native cache back to the valid tokens loads nothing from host memory."""
        n_keep = len(self.tokens)
        return n_keep == self.n_physical or n_keep in self.saved or self._can_trim_to(n_keep)

    def hand_over(self, n_keep: int) -> dict[int, Snapshot]:
        """Remove and return the checkpoints of more than `n_keep` tokens, which the caller must drop."""
        handed_over = {n: kept for n, kept in self.checkpoints.items() if n > n_keep}
        self.checkpoints = {n: kept for n, kept in self.checkpoints.items() if n <= n_keep}
        return handed_over

    def save(self) -> list[CacheEdit]:
        """Keep this state on the device, to return to it if the next decoded tokens are rejected.

        If there are too many states, the shortest one is dropped.
        """
        assert self.n_physical == len(self), f"slot {self.index} was not trimmed before it is saved"
        if self.n_physical in self.saved:
            return []
        n_places = self.traits.n_step_checkpoints
        if len(self.saved) == n_places:
            del self.saved[min(self.saved)]
        places = range(self.index * n_places, (self.index + 1) * n_places)
        place = min(set(places) - {kept.key for kept in self.saved.values()})
        self.saved[self.n_physical] = Snapshot("device", place, self.n_physical)
        return [Store(self.index, self.saved[self.n_physical])]

    def store(self, key: int, n_max: int) -> None:
        """Store a checkpoint of this state in host memory under `key`; if there are more than `n_max`, drop
        the least useful one.
        """
        assert self.n_physical == len(self), f"slot {self.index} was not trimmed before it is stored"
        self.checkpoints[self.n_physical] = Snapshot("state", key, self.n_physical)
        self._edits.append(Store(self.index, self.checkpoints[self.n_physical]))
        while len(self.checkpoints) > n_max:
            self._edits.append(Forget(self.checkpoints.pop(least_useful(self.checkpoints, self.cuts)).key))

    def take_stores(self) -> list[CacheEdit]:
        """Return the edits that store and free native checkpoints; once the edits are applied, the
        checkpoints can be loaded.
        """
        edits, self._edits = self._edits, []
        return edits

    def take_edits(self) -> list[CacheEdit]:
        """Return the edits that reduce the native cache to the valid tokens; apply them before decoding."""
        edits = self.take_stores()
        n_keep = len(self.tokens)
        if n_keep < self.n_physical:
            edits.append(self._cut(n_keep))
            edits += [Forget(kept.key) for kept in self.hand_over(n_keep).values()]
            self.saved = {n: kept for n, kept in self.saved.items() if n <= n_keep}
            self.n_physical, self._n_last = n_keep, 0
        return edits

    def end_rollback(self) -> None:
        """Record that another decode follows, after which the last decode cannot be rolled back."""
        self._n_last = 0

    def mark_lost(self) -> None:
        """Record that the native cache was emptied."""
        self.tokens, self.n_physical, self.saved = [], 0, {}
        self._edits += [Forget(kept.key) for kept in self.hand_over(0).values()]

    def shared_with(self, tokens: list[int]) -> int:
        """Return the length of the common prefix of the valid tokens and `tokens`."""
        return common_prefix_length(self.tokens, tokens)

    def reuse_score(self, tokens: list[int]) -> int:
        """Return the length of the common prefix if it is at least half of `tokens` or of the valid tokens,
        else 0.

        Most texts share a chat template or a system prompt. While another slot is free, a short prefix is no
        reason to overwrite a conversation that may be continued.
        """
        n_shared = self.shared_with(tokens)
        return n_shared if 2 * n_shared >= min(len(tokens), len(self.tokens)) else 0

    def _can_trim_to(self, n_keep: int) -> bool:
        n_rollback = self.traits.n_rollback
        if n_rollback is None or n_keep == 0:
            return True
        return self.n_physical - n_keep <= min(n_rollback, self._n_last - 1)

    def _cut(self, n_keep: int) -> CacheEdit:
        if self._can_trim_to(n_keep):
            return Trim(self.index, n_keep)
        return Restore(self.index, self.saved.get(n_keep) or self.checkpoints[n_keep], n_keep)


def cut_length(tokens: Sequence[int], n_max: int, stops: Iterable[int] | None = None) -> int:
    """Return the largest length up to `n_max` to which `tokens` can be cut, kept or shared.

    All cuts are rounded down here. stops: the lengths to which a memory can be cut back; None: any. No cut
    divides an image.
    """
    n = image_start(tokens, min(n_max, len(tokens)))
    return n if stops is None else max((stop for stop in stops if stop <= n), default=0)


def least_useful(lengths: Collection[int], cuts: Iterable[int]) -> int:
    """Return the checkpoint length to drop first: the oldest length that none of `cuts` would use.

    The first checkpoint is dropped last, because it is probably a system prompt.
    """
    first, *later = sorted(lengths)
    used = {max((n for n in later if n <= cut), default=0) for cut in cuts}
    return next((n for n in later if n not in used), later[0] if later else first)


def common_prefix_length(one: Sequence[object], other: Sequence[object]) -> int:
    """Return the length of the common prefix, by bisection: comparing slices is much faster than a loop."""
    n = min(len(one), len(other))
    if one[:n] == other[:n]:
        return n
    n_equal, n_unequal = 0, n
    while n_unequal - n_equal > 1:
        middle = (n_equal + n_unequal) // 2
        if one[n_equal:middle] == other[n_equal:middle]:
            n_equal = middle
        else:
            n_unequal = middle
    return n_equal
