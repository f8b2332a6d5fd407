from dataclasses import replace
from itertools import islice

import pytest

from lab.campaign.asking import Outcome
from lab.campaign.requests import CHAT, MixedRequest
from lab.campaign.soak import Soak, back_faults, phases, unit_of
from lab.measuring.answer import ReceivedAnswer

HOUR = 3600.0
CHAT_REQUEST = MixedRequest(3, "chat", CHAT, {"messages": [{"role": "user", "content": "Hi"}]})


def answered(request=CHAT_REQUEST, n_prompt=10, *, done=True):
    answer = ReceivedAnswer(done=done)
    usage = {"prompt_tokens": n_prompt, "completion_tokens": 2}
    answer.take({"choices": [{"index": 0, "message": {"content": "Hello"}}], "usage": usage})
    return Outcome(request, 0.0, answer=answer)


@pytest.mark.parametrize("seconds", [120.0, HOUR])
def test_all_kinds_of_phases_come_and_the_lead_sleeps_once_but_not_at_the_end(seconds):
    run = list(phases(1, seconds, 2))
    assert {phase.kind for phase in run} == {"quiet", "busy", "pause"}
    assert seconds <= sum(phase.seconds for phase in run) < 2 * seconds
    (sleep,) = (i for i, phase in enumerate(run) if phase.seconds > 2 * unit_of(seconds))
    assert run[sleep].kind == "pause"
    assert sleep < len(run) - 1
    assert run == list(phases(1, seconds, 2))


def test_faults_of_backs_leave_most_of_the_time_to_drafting():
    an_hour = [fault for fault in islice(back_faults(1, 60.0), 100) if fault.begins < HOUR]
    assert {fault.kind for fault in an_hour} == {"back-stopped", "back-killed"}
    assert sum(fault.seconds for fault in an_hour) < HOUR / 3


def test_a_conversation_grows_until_its_context_is_nearly_full():
    later = Soak.next_turn(answered())
    assert [message["content"] for message in later.body["messages"][:2]] == ["Hi", "Hello"]
    assert Soak.next_turn(answered(later))
    assert Soak.next_turn(answered(n_prompt=1500)) is None
    assert Soak.next_turn(answered(done=False)) is None
    long = {"messages": [{"role": "user", "content": "Hi" * 2000}]}
    assert Soak.next_turn(answered(replace(CHAT_REQUEST, body=long))) is None
    assert Soak.next_turn(answered(replace(CHAT_REQUEST, kind="schema"))) is None
