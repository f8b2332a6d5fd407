"""Asking a lead how it is: each way in which that fails is a sentence."""

import socket

import httpx
import pytest

from shared.diagnostics.doctor.diagnosis import Weight
from shared.diagnostics.doctor.visit import Visit, is_own_address


def visit(answer, key=None):
    """(findings, report) of a lead whose answers `answer` gives by path."""

    def respond(request):
        given = answer(request.url.path)
        if isinstance(given, Exception):
            raise given
        return given

    with Visit("http://lead:5555", key, httpx.MockTransport(respond)) as asked:
        return list(asked.examine()), asked.report


def healthy(answer):
    return lambda path: httpx.Response(200, json={"status": "ok"}) if path == "/health" else answer


def refusal(status):
    return httpx.Response(status, json={"error": {"message": "because"}})


def test_a_lead_that_answers_is_well():
    findings, report = visit(healthy(httpx.Response(200, json={"backs": [{"name": "desk"}]})))
    assert [each.weight for each in findings] == [Weight.GOOD]
    assert report.backs[0].name == "desk"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (httpx.ConnectError("[Errno 111] Connection refused"), "nothing listens on this port"),
        (httpx.ConnectTimeout("timed out"), "a firewall or a cut cable"),
        (httpx.ConnectError("[Errno -2] Name or service not known"), "nobody knows the name lead"),
        (httpx.ReadError(""), "ReadError"),
        (httpx.RemoteProtocolError("Server disconnected"), "its address begins with https://"),
        (httpx.ConnectError("[SSL: RECORD_LAYER_FAILURE] record layer failure"), "does not speak HTTPS"),
    ],
)
def test_a_lead_that_cannot_be_reached_is_told_apart(error, words):
    findings, report = visit(lambda _: error)
    assert [each.weight for each in findings] == [Weight.PROBLEM]
    assert words in findings[0].sentence
    assert report is None


def test_a_lead_that_loads_is_not_ready():
    (found,), _ = visit(lambda _: refusal(503))
    assert "not ready (because)" in found.sentence


def test_something_else_that_answers_is_no_lead():
    (found,), _ = visit(lambda _: httpx.Response(404))
    assert "is no lead" in found.sentence


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(("key", "words"), [(None, "none was given"), ("k", "none of its keys")])
def test_a_wrong_key_and_no_key_are_told_apart(status, key, words):
    findings, _ = visit(healthy(refusal(status)), key)
    assert findings[-1].weight is Weight.PROBLEM
    assert f"{words}: give --key or --key-file" in findings[-1].sentence


@pytest.mark.parametrize("answer", [httpx.Response(200, text="hello"), httpx.Response(404)])
def test_another_openai_server_is_no_lead_of_ours(answer):
    findings, report = visit(healthy(answer))
    assert findings[-1].weight is Weight.HINT
    assert report is None


def test_ones_own_address_is_known():
    assert is_own_address("http://127.0.0.1:5555")
    assert not is_own_address("http://192.0.2.1:5555")  # RFC 5737: nobody's


def test_a_name_that_nobody_knows_is_no_address_of_ones_own(monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert not is_own_address("http://nowhere.invalid")
