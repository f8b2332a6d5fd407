import mmap

import pytest

from lead.images.image_memory import SharedMemory


@pytest.fixture
def memory():
    memory = SharedMemory(256)
    yield memory
    memory.close()


def test_who_has_the_descriptor_reads_what_was_stored(memory):
    stored = memory.store(b"rows")
    with mmap.mmap(memory.descriptor, 256, prot=mmap.PROT_READ) as other:
        assert other[stored.offset : stored.offset + stored.n_bytes] == b"rows"


def test_places_do_not_overlap_and_are_freed_with_their_owner(memory):
    kept = [memory.store(bytes([n]) * 64) for n in range(4)]
    assert memory.store(b"x") is None
    assert [memory.read(each)[0] for each in kept] == [0, 1, 2, 3]
    del kept[1]
    assert memory.store(b"x").offset == 64


def test_what_was_freed_last_is_taken_last(memory):
    first = memory.store(b"a")
    del first
    second = memory.store(b"b")
    assert second.offset == 64


def test_a_place_is_found_from_the_beginning_again(memory):
    for n in range(9):
        stored = memory.store(bytes([n]) * 128)
        assert memory.read(stored) == bytes([n]) * 128
        del stored


def test_what_is_larger_than_the_memory_has_no_place(memory):
    assert memory.store(bytes(257)) is None
