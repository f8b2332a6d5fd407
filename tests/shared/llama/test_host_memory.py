"""Blocks of pinned memory are reused, limited, and replaced by other memory if there are none."""

import ctypes

import pytest

from shared.llama import host_memory
from shared.llama.host_memory import HostMemory

MIB = 1 << 20
KIND = 7
"""A stand-in for a ggml_backend_buffer_type_t."""


class Pinned:
    """ggml's functions for buffers, of at most `n_max` bytes in all."""

    def __init__(self, n_max=1 << 40):
        self.sizes = {}  # by buffer
        self.n_made = 0
        self._n_max = n_max
        self._memory = {}

    def function(self, name):
        return getattr(self, name)

    def ggml_backend_buft_alloc_buffer(self, kind, size):
        assert kind == KIND
        if sum(self.sizes.values()) + size > self._n_max:
            return None
        self.n_made += 1
        self.sizes[self.n_made] = size
        self._memory[self.n_made] = (ctypes.c_uint8 * size)()
        return self.n_made

    def ggml_backend_buffer_get_base(self, buffer):
        return ctypes.addressof(self._memory[buffer])

    def ggml_backend_buffer_free(self, buffer):
        del self.sizes[buffer], self._memory[buffer]


@pytest.fixture
def pinned(monkeypatch):
    made = Pinned()
    monkeypatch.setattr(host_memory, "function", made.function)
    return made


def is_written(block):
    """Return whether the block keeps what is written to it."""
    ctypes.memset(block.pointer, 5, block.size)
    return block.pointer[0] == block.pointer[block.size - 1] == 5


@pytest.mark.parametrize("kind", [None, KIND])
@pytest.mark.usefixtures("pinned")
def test_its_bytes_are_those_behind_the_pointer(kind):
    block = HostMemory(kind, 100 * MIB).take(4 * MIB)
    content = block.bytes()
    content[:2] = b"ab"
    assert (content.nbytes, block.pointer[0], block.pointer[1]) == (4 * MIB, *b"ab")


def test_without_a_device_it_is_memory_like_any_other():
    memory = HostMemory(None, 100 * MIB)
    block = memory.take(8 * MIB)
    assert is_written(block)
    assert not block.is_pinned
    memory.give_back(block)
    memory.clear()


def test_what_is_given_back_is_used_again_for_what_nearly_fills_it(pinned):
    memory = HostMemory(KIND, 100 * MIB)
    block = memory.take(32 * MIB)
    assert block.is_pinned
    assert is_written(block)
    memory.give_back(block)
    again, other = memory.take(30 * MIB), memory.take(10 * MIB)
    assert again is block
    assert again.size == 30 * MIB
    assert is_written(again)
    assert sorted(pinned.sizes.values()) == [10 * MIB, 32 * MIB]
    memory.give_back(other)
    memory.give_back(again)
    memory.clear()
    assert not pinned.sizes


def test_what_is_kept_for_later_is_freed_rather_than_to_exceed_the_limit(pinned):
    memory = HostMemory(KIND, 100 * MIB)
    blocks = [memory.take(n * MIB) for n in (30, 31, 32)]
    for block in blocks:
        memory.give_back(block)
    memory.take(50 * MIB)
    assert sorted(pinned.sizes.values()) == [32 * MIB, 50 * MIB]


def test_more_than_the_limit_may_be_in_use_and_is_freed_when_given_back(pinned):
    memory = HostMemory(KIND, 20 * MIB)
    blocks = [memory.take(16 * MIB) for _ in range(3)]
    for block in blocks:
        memory.give_back(block)
    assert list(pinned.sizes.values()) == [16 * MIB]


def test_small_blocks_are_not_pinned(pinned):
    memory = HostMemory(KIND, 100 * MIB)
    assert not memory.take(MIB).is_pinned
    assert not pinned.sizes


def test_there_are_not_too_many(pinned, monkeypatch):
    monkeypatch.setattr(host_memory, "_MAX_BLOCKS", 2)
    memory = HostMemory(KIND, 1000 * MIB)
    blocks = [memory.take(8 * MIB) for _ in range(3)]
    assert [block.is_pinned for block in blocks] == [True, True, False]
    memory.give_back(blocks[0])
    assert memory.take(64 * MIB).is_pinned
    assert sorted(pinned.sizes.values()) == [8 * MIB, 64 * MIB]


def test_where_the_device_refuses_it_is_memory_like_any_other(monkeypatch):
    monkeypatch.setattr(host_memory, "function", Pinned(n_max=40 * MIB).function)
    memory = HostMemory(KIND, 100 * MIB)
    blocks = [memory.take(32 * MIB) for _ in range(2)]
    assert [block.is_pinned for block in blocks] == [True, False]
    assert all(map(is_written, blocks))
