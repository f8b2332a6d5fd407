"""Each asker gets the answer to its own question, even if others ask or leave."""

import asyncio

import pytest

from lead.disk_cache.act_on_slot import ActOnSlot
from lead.engine.events import Answer
from lead.engine.explain import Explain
from lead.engine_client import open_questions
from lead.engine_client.open_questions import OpenQuestions
from shared.errors import UnavailableError

ERASE = ActOnSlot(action="erase", slot=0)


class Asked:
    """Questions of tasks, and the commands sent for them."""

    def __init__(self):
        self.sent = []
        self.questions = OpenQuestions(self.sent.append)

    async def ask(self, *questions):
        asking = [asyncio.ensure_future(self.questions.ask(question)) for question in questions]
        await asyncio.sleep(0)
        return asking


async def test_answers_come_in_any_order():
    asked = Asked()
    first, second = await asked.ask(ERASE, Explain())
    answers = [Answer(number=ask.number, reply={"n": ask.number}) for ask in asked.sent]
    for answer in reversed(answers):
        asked.questions.close(answer)
    assert [await first, await second] == answers
    assert len(asked.questions) == 0


async def test_many_who_look_at_once_share_one_answer():
    asked = Asked()
    asking = await asked.ask(*[Explain()] * 500)
    (ask,) = asked.sent
    answer = Answer(number=ask.number)
    asked.questions.close(answer)
    assert await asyncio.gather(*asking) == [answer] * 500


async def test_who_gives_up_leaves_the_others_their_answer():
    asked = Asked()
    impatient, patient = await asked.ask(Explain(), Explain())
    impatient.cancel()
    await asyncio.sleep(0)
    asked.questions.close(Answer(number=0))
    assert await patient == Answer(number=0)


async def test_what_changes_something_is_asked_each_time():
    asked = Asked()
    await asked.ask(ERASE, ERASE)
    assert [ask.number for ask in asked.sent] == [0, 1]
    asked.questions.close_all("the test has ended")


async def test_a_question_whose_asker_has_left_stays_open_until_it_is_answered():
    asked = Asked()
    (asking,) = await asked.ask(ERASE)
    asking.cancel()
    await asyncio.sleep(0)
    assert len(asked.questions) == 1
    asked.questions.close(Answer(number=0))
    assert len(asked.questions) == 0


async def test_no_more_are_open_than_the_pipe_takes(monkeypatch):
    monkeypatch.setattr(open_questions, "_MAX_OPEN", 2)
    asked = Asked()
    asking = await asked.ask(ERASE, ERASE)
    with pytest.raises(UnavailableError, match="is busy"):
        await asked.questions.ask(ERASE)
    asked.questions.close(Answer(number=0))
    asking += await asked.ask(ERASE)
    assert len(asked.sent) == 3
    asked.questions.close_all("the test has ended")
    await asyncio.gather(*asking)


async def test_when_the_engine_has_ended_all_are_told_and_a_later_one_is_asked_anew():
    asked = Asked()
    asking = await asked.ask(ERASE, Explain())
    asked.questions.close_all("the engine has ended")
    assert {(answer.reason, answer.may_recover) for answer in await asyncio.gather(*asking)} == {
        ("the engine has ended", True)
    }
    await asked.ask(Explain())
    assert [ask.number for ask in asked.sent] == [0, 1, 2]
    asked.questions.close_all("the test has ended")
