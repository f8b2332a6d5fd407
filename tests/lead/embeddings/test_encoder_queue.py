from array import array

import pytest

from lead.embeddings.encoder_messages import MAX_SEQUENCES, EncodedText, Together
from lead.embeddings.encoder_queue import EncoderQueue, WaitingText
from lead.tokenizer.fair_queue import Client


@pytest.fixture
def queue():
    return EncoderQueue()


def push(queue, name, n_tokens=10, client="a"):
    text = WaitingText(Client(client), EncodedText(array("i", bytes(4 * n_tokens))), name)
    assert queue.push(text) == []
    return text


def names(texts):
    return [text.waiter for text in texts]


def test_texts_that_wait_are_computed_together(queue):
    push(queue, 1)
    push(queue, 2)
    assert names(queue.take_batch()) == [1, 2]
    assert names(queue.answer()) == [1, 2]
    assert not queue


def test_a_batch_ends_where_the_next_text_would_be_too_much(queue):
    for name, n_tokens in enumerate((300, 300, 10)):
        push(queue, name, n_tokens)
    assert [names(queue.take_batch()) for _ in range(2)] == [[0], []]
    queue.answer()
    assert names(queue.take_batch()) == [1, 2]


def test_a_long_text_is_alone(queue):
    queue.together = Together(n_tokens=100, n_alone=50)
    for name, n_tokens in enumerate((40, 40, 50, 10, 10)):
        push(queue, name, n_tokens)
    assert [names(queue.take_batch()), names(queue.take_batch())] == [[0, 1], [2]]


def test_a_text_larger_than_usual_batches_is_computed_alone(queue):
    push(queue, 1, 2000)
    push(queue, 2)
    assert names(queue.take_batch()) == [1]


def test_clients_take_turns(queue):
    for name in range(3):
        push(queue, name, client="many")
    push(queue, "one", client="few")
    assert names(queue.take_batch())[:2] == [0, "one"]


def test_while_a_batch_is_computed_only_a_whole_one_is_added(queue):
    push(queue, "first")
    queue.take_batch()
    for name in range(MAX_SEQUENCES - 1):
        push(queue, name, 1)
    assert queue.take_batch() == []
    push(queue, "last", 1)
    assert names(queue.take_batch()) == [*range(MAX_SEQUENCES - 1), "last"]
    push(queue, "third")
    assert queue.take_batch() == []


def test_what_a_process_had_when_it_died_is_computed_first(queue):
    push(queue, 1)
    push(queue, 2)
    queue.take_batch()
    push(queue, 3)
    assert queue.lost() == []
    assert [names(queue.take_batch()) for _ in range(2)] == [[1], [2]]  # one of them may be to blame
    queue.answer()
    queue.answer()
    assert names(queue.take_batch()) == [3]


def test_a_text_with_which_processes_die_is_given_up(queue):
    push(queue, 1)
    given_up = []
    for _ in range(3):
        queue.take_batch()
        given_up += names(queue.lost())
    assert given_up == [1]
    assert not queue


def test_what_nobody_waits_for_is_not_computed(queue):
    text = push(queue, 1)
    push(queue, 2)
    queue.drop(text)
    assert names(queue.take_batch()) == [2]


def test_all_can_be_given_up(queue):
    push(queue, 1)
    queue.take_batch()
    push(queue, 2)
    assert names(queue.clear()) == [1, 2]
    assert not queue
