"""A bounded queue in which clients take turns. Knows only the sizes of the items."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T", bound=Hashable)


class Client(NamedTuple):
    """A client of a fair queue: keys take turns with each other, then addresses that have the same key."""

    key: str
    address: str = ""


class FairQueue(Generic[T]):
    """A queue that is first in, first out for each client.

    The next item belongs to the key that was served least recently, and to its address that was served least
    recently.
    """

    def __init__(self, maximum: int, max_bytes: int) -> None:
        """Hold at most `maximum` items with at most `max_bytes` in all."""
        self._max = maximum
        self._max_bytes = max_bytes
        self._clients: OrderedDict[Client, dict[T, int]] = OrderedDict()
        """The bytes of each item, the oldest first."""
        self._keys: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """The bytes and the number of each key's items."""
        self._n = 0
        self._n_bytes = 0

    def __len__(self) -> int:
        return self._n

    def push(self, client: Client, item: T, n_bytes: int) -> list[T]:
        """Append an item, which must be unique; return the items dropped to make room.

        They are the newest items of the key with the most bytes, and of its address with the most bytes. The
        new item may be among them.
        """
        self._clients.setdefault(client, {})[item] = 0
        self._count(client.key, 1, 0)
        return self.grow(client, item, n_bytes)

    def grow(self, client: Client, item: T, n_bytes: int) -> list[T]:
        """Count more bytes of an item, if it is in the queue. Returns items dropped to make room,
        as `push`.
        """
        if item not in (waiting := self._clients.get(client, {})):
            return []
        waiting[item] += n_bytes
        self._count(client.key, 0, n_bytes)
        removed = []
        while self._n > self._max or self._n_bytes > self._max_bytes:
            removed.append(self._take(self._largest(), newest=True))
        return removed

    def pop(self) -> T:
        """Return the next item; raises IndexError if there is none."""
        if not self._n:
            raise IndexError("the queue is empty")
        key = next(iter(self._keys))
        self._keys.move_to_end(key)
        client = next(each for each in self._clients if each.key == key)
        self._clients.move_to_end(client)
        return self._take(client)

    def remove(self, client: Client, item: T) -> None:
        """Remove an item; does nothing if it is not in the queue."""
        if item in (waiting := self._clients.get(client, {})):
            self._forget(client, waiting.pop(item))

    def _largest(self) -> Client:
        key = max(self._keys, key=self._keys.__getitem__)
        return max((each for each in self._clients if each.key == key), key=self._share)

    def _share(self, client: Client) -> tuple[int, int]:
        waiting = self._clients[client]
        return sum(waiting.values()), len(waiting)

    def _take(self, client: Client, *, newest: bool = False) -> T:
        waiting = self._clients[client]
        item = next(reversed(waiting) if newest else iter(waiting))
        self._forget(client, waiting.pop(item))
        return item

    def _forget(self, client: Client, n_bytes: int) -> None:
        self._count(client.key, -1, -n_bytes)
        if not self._clients[client]:
            del self._clients[client]

    def _count(self, key: str, n: int, n_bytes: int) -> None:
        self._n += n
        self._n_bytes += n_bytes
        of_key = self._keys.get(key, (0, 0))
        self._keys[key] = (of_key[0] + n_bytes, of_key[1] + n)
        if not self._keys[key][1]:
            del self._keys[key]
