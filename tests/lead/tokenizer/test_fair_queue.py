import pytest

from lead.tokenizer.fair_queue import Client, FairQueue

ONE, TWO = Client("one"), Client("two")


@pytest.fixture
def queue():
    return FairQueue(maximum=4, max_bytes=100)


def drained(queue):
    return [queue.pop() for _ in range(len(queue))]


def test_clients_take_turns(queue):
    for client, item in [(ONE, "a"), (ONE, "b"), (ONE, "c"), (TWO, "x")]:
        queue.push(client, item, 1)
    assert drained(queue) == ["a", "x", "b", "c"]


def test_a_client_whose_turn_it_was_waits_for_the_others(queue):
    queue.push(ONE, "a", 1)
    queue.push(TWO, "x", 1)
    assert queue.pop() == "a"
    queue.push(ONE, "b", 1)
    assert drained(queue) == ["x", "b"]


def test_a_full_queue_refuses_the_client_with_the_most_in_it(queue):
    for item in "abcd":
        assert not queue.push(ONE, item, 1)
    assert queue.push(TWO, "x", 1) == ["d"]
    assert queue.push(ONE, "e", 1) == ["e"]
    assert drained(queue) == ["a", "x", "b", "c"]


def test_bytes_are_limited_too(queue):
    queue.push(ONE, "a", 60)
    assert queue.push(TWO, "x", 50) == ["a"]
    assert drained(queue) == ["x"]


def test_an_item_that_can_never_fit_is_refused(queue):
    assert queue.push(ONE, "a", 101) == ["a"]
    assert len(queue) == 0


def test_an_item_can_be_withdrawn(queue):
    queue.push(ONE, "a", 100)
    queue.remove(ONE, "a")
    queue.remove(ONE, "a")
    assert not queue.push(TWO, "x", 100)
    assert drained(queue) == ["x"]


def test_keys_take_turns_before_addresses_do(queue):
    for address in "123":
        queue.push(Client("one", address), address, 1)
    queue.push(TWO, "x", 1)
    assert drained(queue) == ["1", "x", "2", "3"]


def test_addresses_of_one_key_take_turns(queue):
    for address, item in [("1", "a"), ("1", "b"), ("2", "c")]:
        queue.push(Client("one", address), item, 1)
    assert drained(queue) == ["a", "c", "b"]


def test_a_full_queue_refuses_the_key_with_the_most_in_it_from_however_many_addresses(queue):
    queue.push(TWO, "x", 40)
    queue.push(Client("one", "1"), "a", 20)
    queue.push(Client("one", "2"), "b", 35)
    assert queue.push(TWO, "y", 10) == ["b"]


def test_an_item_that_grows_too_large_with_others_drives_out_the_newest_of_whoever_has_the_most(queue):
    for client, item in [(ONE, "a"), (ONE, "b"), (TWO, "x")]:
        queue.push(client, item, 0)
    assert not queue.grow(ONE, "a", 30)
    assert not queue.grow(ONE, "b", 30)
    assert queue.grow(TWO, "x", 50) == ["b"]
    assert queue.grow(ONE, "b", 1000) == [], "it has gone"
    assert queue.grow(TWO, "x", 30) == ["x"]
