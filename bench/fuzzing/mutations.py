"""Broken messages, made from valid ones: wrong values, fields and texts. Seeded, without I/O."""

import copy
import json
import random
from collections.abc import Callable
from typing import Any

from bench.attack.values import small, written

Message = dict[str, Any]

_TEXTS = (
    *("", " ", "draft", "open", "x" * 64, "x" * 65, "x" * 5000, "\x1b[2J\x07", "\u202etxt\u2066", "\ud800"),
    *("\U0001f600" * 40, "12:00:00 lead INFO: all well\n", "../../etc", "{}"),
)
_NUMBERS = (63, 64, 65, 4095, 4096, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, 1 << 63, 10**30, 5e-324)
"""What limits of the protocol, a vocabulary and integers are near to."""
_MAX_ITEMS = 80


class Mutator:
    """Each call breaks a message in one way, or in several."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._ways: tuple[Callable[[Message], str | bytes], ...] = (
            self._with_wrong_value,
            self._with_wrong_value,
            self._without_field,
            self._with_more_fields,
            self._with_doubled_key,
            self._cut,
            self._with_wrong_bytes,
            self._garbage,
            self._nested,
            self._glued,
        )

    def broken(self, message: Message) -> str | bytes:
        """A text or binary frame that is similar to `message`, and possibly still valid."""
        return self._rng.choice(self._ways)(copy.deepcopy(message))

    def junk(self) -> Any:
        """Any value that JSON has, and some that it has not."""
        match self._rng.randrange(5):
            case 0 | 1:
                return self._rng.choice(_NUMBERS + _TEXTS)
            case 2:
                return [self._rng.choice(_NUMBERS)] * self._rng.randrange(_MAX_ITEMS)
            case _:
                return small(self._rng)

    def _with_wrong_value(self, message: Message) -> str:
        """Give a field, or an item inside it, a wrong value."""
        key = self._rng.choice(list(message))
        value = message[key]
        if isinstance(value, list) and value and self._rng.random() < 0.7:  # noqa: PLR2004 - a share
            value[self._rng.randrange(len(value))] = self.junk()
        elif isinstance(value, dict) and value and self._rng.random() < 0.8:  # noqa: PLR2004 - a share
            value[self._rng.choice(list(value))] = self.junk()
        else:
            message[key] = self.junk()
        return written(message)

    def _without_field(self, message: Message) -> str:
        del message[self._rng.choice(list(message))]
        return written(message)

    def _with_more_fields(self, message: Message) -> str:
        """Which a peer has to ignore."""
        return written(message | {f"x{i}": self.junk() for i in range(self._rng.randrange(1, 8))})

    def _with_doubled_key(self, message: Message) -> str:
        text, key = written(message), self._rng.choice(list(message))
        return f"{{{json.dumps(key)}:{written(self.junk())},{text[1:]}"

    def _cut(self, message: Message) -> str:
        text = written(message)
        return text[: self._rng.randrange(len(text))]

    def _with_wrong_bytes(self, message: Message) -> str | bytes:
        data = bytearray(written(message).encode("utf-8", "replace"))
        for _ in range(self._rng.randrange(1, 4)):
            data[self._rng.randrange(len(data))] = self._rng.randrange(256)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return bytes(data)

    def _garbage(self, _message: Message) -> str | bytes:
        data = self._rng.randbytes(self._rng.randrange(200))
        return data if self._rng.random() < 0.5 else data.decode("latin-1")  # noqa: PLR2004 - half of them

    def _nested(self, message: Message) -> str:
        depth = self._rng.choice((10, 150, 250, 3000))
        return written(message)[:-1] + f',"x":{"[" * depth}{"]" * depth}}}'

    def _glued(self, message: Message) -> str:
        return written(message) + self._rng.choice((" ", "\n", "", ",", "\ufeff")) + written(message)
