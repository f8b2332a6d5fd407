"""Attacks: requests that a client could send to bring a lead down. Each is made from its number alone."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from bench.attack.places import Operation
from bench.attack.values import (
    ELEMENTS,
    Raw,
    encode,
    fitting,
    large,
    large_list,
    large_object,
    large_text,
    small,
)

Json = Any

_JSON = "application/json"
_OTHER_TYPES = (
    "",
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "application/jsonp",
)
_UNLISTED = (
    *(("POST", path) for path in ("/embeddings", "/v1/rerank", "/infill", "/props", "/slots/0", "/nothing")),
    *(
        ("POST", path)
        for path in ("/health", "/v1/models", "/chat/completions", "/completions", "/responses")
    ),
    *((method, "/v1/chat/completions") for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD")),
)
"""What the description does not list: refused with a reason, aliases, wrong methods, wrong paths."""


_FITTING = 0.5
"""The share of values of the right type: errors lie behind those that validation lets through."""


class Delivery(Enum):
    """How the body is sent."""

    WHOLE = auto()
    CHUNKED = auto()
    SLOW = auto()  # in pieces, with pauses
    CUT = auto()  # less than was declared, then the connection is closed
    LEFT = auto()  # whole, and the client leaves without reading the answer


@dataclass(frozen=True, slots=True)
class Attack:
    """One request; `what` says in words what is hostile about it."""

    method: str
    path: str
    what: str
    body: bytes = b""
    content_type: str = _JSON
    delivery: Delivery = Delivery.WHOLE

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.what}"


class Attacks:
    """Attacks on the operations of one description."""

    def __init__(self, operations: Sequence[Operation], seed: int) -> None:
        self._operations = operations
        self._with_body = [operation for operation in operations if operation.places]
        self._seed = seed

    def number(self, index: int) -> Attack:
        """A small one; the same each time for a seed and an index."""
        rng = random.Random(f"{self._seed}:{index}")  # noqa: S311 - repeatable on purpose
        makers: tuple[tuple[float, Callable[[random.Random], Attack]], ...] = (
            (70, self._fields),
            (10, self._broken_text),
            (5, self._large_for_its_kind),
            (3, self._wrong_type),
            (7, self._delivered),
            (5, self._unlisted),
        )
        ((_, make),) = rng.choices(makers, [weight for weight, _ in makers])
        return make(rng)

    def large(self, n_bytes: int) -> Iterator[Attack]:
        """All large ones: every place that may hold a list, an object, a text or several of them."""
        for operation in self._with_body:
            for place in operation.places:
                for what, value in _fillings(place.kinds, n_bytes):
                    body = {**_short(operation), **place.put(value)} if place.name else value
                    yield self._attack(operation, f"{place.name}: {what}", body)

    def _fields(self, rng: random.Random) -> Attack:
        """Hostile values in one to three fields of a good request."""
        operation = rng.choice(self._with_body)
        body: Json = _short(operation)
        names = []
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            place = rng.choice(operation.places)
            value = fitting(rng, place.kinds) if rng.random() < _FITTING else small(rng)
            names.append(place.name)
            placed = place.put(value) if place.name or isinstance(value, dict) else {"extra": value}
            body = {**body, **placed}
        return self._attack(operation, ", ".join(names), {**(operation.good or {}), **body})

    def _large_for_its_kind(self, rng: random.Random) -> Attack:
        operation = rng.choice(self._with_body)
        place = rng.choice(operation.places)
        what, value = large(rng, rng.choice((2_000, 20_000, 60_000)))
        body = {**_short(operation), **place.put(value)} if place.name else value
        return self._attack(operation, f"{place.name}: {what}", body)

    def _broken_text(self, rng: random.Random) -> Attack:
        """Bytes that are not JSON, or only nearly."""
        attack = self._fields(rng)
        body = bytearray(attack.body)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(body)) if body else 0
            match rng.randrange(4):
                case 0:
                    body[at : at + 1] = rng.randbytes(1)
                case 1:
                    del body[at:]
                case 2:
                    body[at:at] = rng.choice(
                        (b"\xff", b"\xed\xa0\x80", b'"', b"{", b"]", b"\x00", b"\xef\xbb\xbf")
                    )
                case _:
                    body[at:at] = body[at : at + rng.randint(1, 40)]
        return replace(attack, body=bytes(body), what=f"{attack.what}, with bytes changed")

    def _wrong_type(self, rng: random.Random) -> Attack:
        return replace(self._fields(rng), content_type=rng.choice(_OTHER_TYPES))

    def _delivered(self, rng: random.Random) -> Attack:
        deliveries = (Delivery.CHUNKED, Delivery.CHUNKED, Delivery.SLOW, Delivery.CUT, Delivery.LEFT)
        return replace(self._fields(rng), delivery=rng.choice(deliveries))

    def _unlisted(self, rng: random.Random) -> Attack:
        if rng.random() < 0.5:  # noqa: PLR2004 - half of them
            operation = rng.choice([each for each in self._operations if not each.places])
            return Attack(operation.method, operation.path, "as it is", content_type="")
        method, path = rng.choice(_UNLISTED)
        return Attack(method, path, "unlisted", rng.choice((b"", b"{}", b"{", encode(small(rng)))))

    def _attack(self, operation: Operation, what: str, body: Json) -> Attack:
        return Attack(operation.method, operation.path, what, encode(body))


def _short(operation: Operation) -> Json:
    """Fields that make an answer short, where one is made."""
    names = {place.name for place in operation.places}
    return {name: 2 for name in ("max_tokens", "max_output_tokens") if name in names}


def _fillings(kinds: frozenset[str], n_bytes: int) -> Iterator[tuple[str, Raw]]:
    if kinds & {"list", "any"}:
        for element in ELEMENTS:
            yield large_list(element, n_bytes)
    if kinds & {"object", "any"}:
        for element in ("0", '""', "[]", '{"a":0}'):
            yield large_object(element, n_bytes)
    if "text" in kinds:
        for text in ("a", "\\", "<|im_end|>"):
            yield large_text(text, n_bytes)
    if kinds == {"number"}:
        yield large_list("[]", n_bytes)


def described(attack: Attack, n_characters: int = 200) -> str:
    """The attack and the beginning of its body, for a table or a log."""
    body = json.dumps(attack.body[:n_characters].decode("utf-8", "replace"))
    return f"{attack} ({attack.delivery.name.lower()}, {len(attack.body)} bytes): {body}"
