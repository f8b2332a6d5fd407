import pytest

from bench.faults.requests import COMPLETION, KINDS, draw, next_turn, with_logprobs
from lead.http.generation_request import ChatRequest
from lead.http.routes.completions import CompletionRequest

MANY = [draw(1, index) for index in range(300)]


def test_a_request_depends_on_seed_and_index_alone():
    assert draw(1, 7) == MANY[7]
    assert draw(2, 7) != MANY[7]


def test_every_kind_is_drawn():
    assert {request.kind for request in MANY} == set(KINDS)


@pytest.mark.parametrize("change", [lambda request: request, with_logprobs])
def test_every_request_is_one_that_the_lead_understands(change):
    for request in map(change, MANY):
        kind = CompletionRequest if request.path == COMPLETION else ChatRequest
        unknown = set(request.body) - set(kind.model_fields)
        assert not unknown, request
        kind.model_validate(request.body).check()


def test_the_next_turn_repeats_what_was_generated():
    request = next(request for request in MANY if request.kind == "chat")
    turn = next_turn(request, "a story")
    assert turn.body["messages"][:2] == [
        *request.body["messages"],
        {"role": "assistant", "content": "a story"},
    ]
    assert turn.index != request.index


def test_the_schema_of_an_answer_is_known():
    assert {request.schema is not None for request in MANY if request.kind == "schema"} == {True}
    assert {request.schema is not None for request in MANY if request.kind != "schema"} == {False}
