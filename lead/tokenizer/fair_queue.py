"""A bounded queue in which clients take turns. Knows nothing of what is queued but its size."""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """First in, first out for each client; the next item comes from the client whose turn is longest ago."""

    def __init__(self, most: int, most_bytes: int) -> None:
        """Holds at most `most` items that have `most_bytes` together."""
        self._most = most
        self._most_bytes = most_bytes
        self._clients: OrderedDict[str, deque[tuple[T, int]]] = OrderedDict()
        self._n = 0
        self._n_bytes = 0

    def __len__(self) -> int:
        return self._n

    def push(self, client: str, item: T, n_bytes: int) -> list[T]:
        """Append an item. Returns what has to go for it: the newest items of whoever has the most bytes.

        That may be the new item itself.
        """
        self._clients.setdefault(client, deque()).append((item, n_bytes))
        self._count(1, n_bytes)
        removed = []
        while self._n > self._most or self._n_bytes > self._most_bytes:
            removed.append(self._take(max(self._clients, key=self._share), newest=True))
        return removed

    def pop(self) -> T:
        """The next item; IndexError if there is none."""
        if not self._n:
            raise IndexError("the queue is empty")
        client = next(iter(self._clients))
        self._clients.move_to_end(client)
        return self._take(client)

    def remove(self, client: str, item: T) -> None:
        """Remove an item if it still waits."""
        for entry in self._clients.get(client, ()):
            if entry[0] is item:
                self._clients[client].remove(entry)
                self._forget(client, entry[1])
                return

    def _share(self, client: str) -> tuple[int, int]:
        waiting = self._clients[client]
        return sum(n_bytes for _, n_bytes in waiting), len(waiting)

    def _take(self, client: str, *, newest: bool = False) -> T:
        waiting = self._clients[client]
        item, n_bytes = waiting.pop() if newest else waiting.popleft()
        self._forget(client, n_bytes)
        return item

    def _forget(self, client: str, n_bytes: int) -> None:
        self._count(-1, -n_bytes)
        if not self._clients[client]:
            del self._clients[client]

    def _count(self, n: int, n_bytes: int) -> None:
        self._n += n
        self._n_bytes += n_bytes
