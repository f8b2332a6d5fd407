import pytest

from lead.tokenizer.fair_queue import FairQueue


@pytest.fixture
def queue():
    return FairQueue(most=4, most_bytes=100)


def drained(queue):
    return [queue.pop() for _ in range(len(queue))]


def test_a_clients_items_stay_in_order(queue):
    for item in "abc":
        queue.push("one", item, 1)
    assert drained(queue) == ["a", "b", "c"]


def test_clients_take_turns(queue):
    for client, item in [("one", "a"), ("one", "b"), ("one", "c"), ("two", "x")]:
        queue.push(client, item, 1)
    assert drained(queue) == ["a", "x", "b", "c"]


def test_a_client_whose_turn_it_was_waits_for_the_others(queue):
    queue.push("one", "a", 1)
    queue.push("two", "x", 1)
    assert queue.pop() == "a"
    queue.push("one", "b", 1)
    assert drained(queue) == ["x", "b"]


def test_a_full_queue_refuses_the_client_with_the_most_in_it(queue):
    for item in "abcd":
        assert not queue.push("one", item, 1)
    assert queue.push("two", "x", 1) == ["d"]
    assert queue.push("one", "e", 1) == ["e"]
    assert drained(queue) == ["a", "x", "b", "c"]


def test_bytes_are_limited_too(queue):
    queue.push("one", "a", 60)
    assert queue.push("two", "x", 50) == ["a"]
    assert drained(queue) == ["x"]


def test_an_item_that_can_never_fit_is_refused(queue):
    assert queue.push("one", "a", 101) == ["a"]
    assert len(queue) == 0


def test_an_item_can_be_withdrawn(queue):
    queue.push("one", "a", 100)
    queue.remove("one", "a")
    queue.remove("one", "a")
    assert not queue.push("two", "x", 100)
    assert drained(queue) == ["x"]


def test_an_empty_queue_has_no_next_item(queue):
    with pytest.raises(IndexError, match="empty"):
        queue.pop()
