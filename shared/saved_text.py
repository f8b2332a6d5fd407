"""A text on disk: what its manifest says (`--cache-disk`, `--slot-save-path`)."""

from typing import Literal, Self

from pydantic import BaseModel, NonNegativeInt

from shared.cache_edits import Snapshot


class SavedPart(BaseModel, frozen=True):
    """`size` bytes in `file` that hold a `Snapshot`. digest: of them, in hexadecimal.

    file: empty if they follow the manifest.
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
        """As it is called in host memory."""
        return Snapshot(self.kind, key, self.end, self.start)

    def holds(self, snapshot: Snapshot) -> bool:
        """Whether it is that of `snapshot`, if both are of one text."""
        return (self.kind, self.start, self.end) == (snapshot.kind, snapshot.start, snapshot.end)


class SavedText(BaseModel, frozen=True):
    """`tokens` and `n_prefill` as in `StoredText`. owner: whom it serves, and nobody else."""

    name: str
    owner: str
    tokens: list[int]
    n_prefill: int
    parts: tuple[SavedPart, ...]

    @property
    def n_checkpoints(self) -> int:
        return sum(part.kind == "state" for part in self.parts)
