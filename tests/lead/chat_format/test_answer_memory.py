"""The turns of conversations that are remembered, and for how long."""

import dataclasses
from array import array

from lead.chat_format.answer_memory import AnswerMemory, Turn, WrittenAnswer
from lead.chat_format.request import ConversationFields
from tests.lead.chat_format.cases import HELLO

AGAIN = {"role": "user", "content": "Again"}


def messages_of(*messages):
    return ConversationFields(messages=list(messages)).messages


TURN = Turn.begin("x", (), array("i"), 0)
REPLY = {"role": "assistant", "content": "Yes"}


def test_a_turn_is_found_by_the_messages_before_the_last_answer():
    memory = AnswerMemory()
    memory.add("me", messages_of(HELLO), TURN, [1, 2])
    assert memory.find("me", messages_of(HELLO, REPLY, AGAIN)).tokens.tolist() == [1, 2]
    assert memory.find("me", messages_of(AGAIN, REPLY, AGAIN)) is None


def test_a_prompt_that_is_sent_again_is_found_by_the_turn_before_it():
    memory = AnswerMemory()
    memory.add("me", messages_of(HELLO), TURN, [1])
    memory.add("me", messages_of(HELLO, REPLY, AGAIN), TURN, [2])
    assert memory.find("me", messages_of(HELLO, REPLY, AGAIN)).tokens.tolist() == [1]


def test_answers_to_others_are_not_found():
    memory = AnswerMemory()
    memory.add("me", messages_of(HELLO), TURN, [1, 2])
    assert memory.find("you", messages_of(HELLO, REPLY, AGAIN)) is None


def test_the_turn_that_was_used_least_recently_gives_way():
    memory = AnswerMemory(n_tokens=2 * (100 + 2))
    for question in ("a", "b", "c"):
        memory.add("me", messages_of({"role": "user", "content": question}), TURN, [1, 2])
        kept = [
            each
            for each in "abc"
            if memory.find("me", messages_of({"role": "user", "content": each}, REPLY, AGAIN))
        ]
    assert kept == ["b", "c"]


def test_a_turn_counts_with_all_answers_before_it():
    memory, answer = AnswerMemory(n_tokens=400), WrittenAnswer(0, 1, b"", array("i", [0] * 50))
    memory.add("me", messages_of(HELLO), TURN, [1])
    memory.add("me", messages_of(AGAIN), dataclasses.replace(TURN, answers=(answer, answer)), [1])
    assert memory.find("me", messages_of(HELLO, REPLY, AGAIN)) is None
    assert memory.find("me", messages_of(AGAIN, REPLY, AGAIN)) is None
