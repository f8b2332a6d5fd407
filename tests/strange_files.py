"""Damaged and hostile GGUF files, made from a good one: wrong lengths, types, nesting, ends, templates.

They are random, from a seed, and made without llama.cpp.
"""

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from gguf import GGUFReader, GGUFValueType, ReaderField

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_STRING, _ARRAY = GGUFValueType.STRING, GGUFValueType.ARRAY
_COUNTS_AT = 8
"""The offset of the number of tensors and then of values. The magic and the version come before."""
_TEMPLATE = b"tokenizer.chat_template"

_SMALL = (0, 1, 7, 8, 9, 12, 13, 255)
_NUMBERS = (*_SMALL, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
"""Numbers near types, counts, lengths, offsets and their limits."""
_MANY = "{% for i in range(99999) %}"
_END = "{% endfor %}"
TEMPLATES = (
    _MANY * 3 + _END * 3,
    "{{ 10 ** (10 ** 9) }}",
    '{% set x = "a" * 1200000000 %}{{ messages[0].content }}',
    "{% set n = namespace(x='ab') %}" + _MANY + "{% set n.x = n.x + n.x %}" + _END,
    _MANY * 2 + "{{ 'long' * 999 }}" + _END * 2,
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ [].__class__.__base__.__subclasses__() }}",
    "{% if %}",
    "\x00\x1b[2J",
    "",
)


@dataclass(slots=True)
class Header:
    """The positions of the numbers in a GGUF's header.

    lengths: of strings, arrays and names, and dimensions and offsets of tensors (u64). types: of values and
    tensors, and numbers of dimensions (u32). numbers: values of four bytes. values: the beginning of each
    value
    with its key, and the end of the last one.
    """

    data: bytes
    lengths: list[int]
    types: list[int]
    numbers: list[int]
    values: list[tuple[int, bytes]]
    end: int


def read_header(path: Path) -> Header:
    """The header of a good file."""
    reader = GGUFReader(path)
    header = Header(path.read_bytes(), [], [], [], [], 0)
    for field in reader.fields.values():
        if field.name.startswith("GGUF."):  # the counts
            continue
        length, _, kind, first, *others, header.end = _places(field)
        header.values.append((length, field.name.encode()))
        header.lengths.append(length)
        header.types.append(kind)
        match field.types[0]:
            case GGUFValueType.STRING:
                header.lengths.append(first)
            case GGUFValueType.ARRAY:
                header.types.append(first)
                header.lengths.append(others[0])
            case _:
                header.numbers += [first] * (header.end - first == _U32.size)
    header.values.append((header.end, b""))
    for tensor in reader.tensors:
        length, _, n_dimensions, dimensions, kind, offset, header.end = _places(tensor.field)
        header.lengths += [length, *range(dimensions, kind, _U64.size), offset]
        header.types += [n_dimensions, kind]
    return header


def _places(field: ReaderField) -> list[int]:
    """The beginning of each part of a value or tensor, and the end of the last part."""
    return list(accumulate((part.nbytes for part in field.parts), initial=field.offset))


def _string(text: bytes) -> bytes:
    return _U64.pack(len(text)) + text


class StrangeFiles:
    """Files made from a good file. The iteration gives another file in each step, without end."""

    def __init__(self, rng: random.Random, good: Path) -> None:
        self._rng = rng
        self._header = read_header(good)
        self._ways: tuple[Callable[[], bytes], ...] = (
            *(self._with_wrong_length, self._with_wrong_length, self._with_wrong_type),
            *(self._with_wrong_number, self._with_wrong_number, self._with_wrong_count),
            *(self._with_more_values, self._cut, self._with_wrong_bytes),
            lambda: self.with_template(rng.choice(TEMPLATES)),
        )

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield self._rng.choice(self._ways)()

    def with_template(self, template: str) -> bytes:
        """The good file with another chat template."""
        value = _string(_TEMPLATE) + _U32.pack(_STRING) + _string(template.encode())
        kept = [
            self._header.data[began:end]
            for (began, key), (end, _) in zip(self._header.values, self._header.values[1:], strict=False)
            if key != _TEMPLATE
        ]
        return self._assembled([*kept, value])

    def with_length(self, number: int) -> bytes:
        """A file whose first value is an array of this many numbers."""
        return self._with_first(_array(10, number))

    def nested(self, depth: int) -> bytes:
        """A file whose first value is an array of an array, and so on."""
        return self._with_first(_U32.pack(_ARRAY) + (_U32.pack(_ARRAY) + _U64.pack(1)) * depth)

    def cut(self, share: float) -> bytes:
        """The beginning of the good file's header."""
        return self._header.data[: int(self._header.end * share)]

    def _with_first(self, value: bytes) -> bytes:
        values = self._header.data[self._header.values[0][0] : self._header.values[-1][0]]
        return self._assembled([_string(b"general.x") + value, values], self._n_values() + 1)

    def _assembled(self, values: list[bytes], n: int | None = None) -> bytes:
        """The header with these values. The tensors' data begin at the next multiple of 32, as before."""
        data, end = self._header.data, self._header.end
        infos = data[self._header.values[-1][0] : end]
        head = data[: _COUNTS_AT + 8] + _U64.pack(len(values) if n is None else n) + b"".join(values) + infos
        return head + bytes(-len(head) % 32) + data[end + -end % 32 :]

    def _n_values(self) -> int:
        return len(self._header.values) - 1

    def _changed(self, at: int, form: struct.Struct) -> bytes:
        """The header with another number at this position: near the old number, or near a limit."""
        data = bytearray(self._header.data)
        before = form.unpack_from(data, at)[0]
        numbers = {
            number % (1 << 8 * form.size) for number in (*_NUMBERS, before + 1, before - 1, before * 2)
        }
        form.pack_into(data, at, self._rng.choice(sorted(numbers - {before})))
        return bytes(data)

    def _with_wrong_length(self) -> bytes:
        return self._changed(self._rng.choice(self._header.lengths), _U64)

    def _with_wrong_type(self) -> bytes:
        return self._changed(self._rng.choice(self._header.types), _U32)

    def _with_wrong_number(self) -> bytes:
        return self._changed(self._rng.choice(self._header.numbers), _U32)

    def _with_wrong_count(self) -> bytes:
        return self._changed(self._rng.choice((_COUNTS_AT, _COUNTS_AT + 8)), _U64)

    def _with_more_values(self) -> bytes:
        if self._rng.random() < 0.5:
            return self.nested(self._rng.choice((1, 10, 1000, 100_000)))
        return self._with_first(_array(self._rng.randrange(14), self._rng.choice(_NUMBERS)))

    def _cut(self) -> bytes:
        return self._header.data[: self._rng.randrange(len(self._header.data))]

    def _with_wrong_bytes(self) -> bytes:
        data = bytearray(self._header.data)
        for _ in range(self._rng.randrange(1, 20)):
            data[self._rng.randrange(self._header.end)] = self._rng.randrange(256)
        return bytes(data)


def _array(kind: int, n: int) -> bytes:
    """An array of numbers, without the numbers."""
    return _U32.pack(_ARRAY) + _U32.pack(kind) + _U64.pack(n)
