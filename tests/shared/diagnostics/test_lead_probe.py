"""Asking a lead for its state. Each failure has its own message."""

import socket

import httpx
import pytest

from shared.diagnostics.findings import Severity
from shared.diagnostics.lead_probe import LeadProbe, is_own_address


def probe(answer, key=None):
    """(findings, report) of a lead. `answer` gives its answers by path."""

    def respond(request):
        given = answer(request.url.path)
        if isinstance(given, Exception):
            raise given
        return given

    with LeadProbe("http://lead:5555", key, httpx.MockTransport(respond)) as asked:
        return list(asked.run()), asked.report


def healthy(answer):
    return lambda path: httpx.Response(200, json={"status": "ok"}) if path == "/health" else answer


def refusal(status):
    return httpx.Response(status, json={"error": {"message": "because"}})


def test_a_lead_that_answers_has_no_findings_but_good_ones():
    findings, report = probe(healthy(httpx.Response(200, json={"backs": [{"name": "desk"}]})))
    assert [each.severity for each in findings] == [Severity.GOOD]
    assert report.backs[0].name == "desk"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (httpx.ConnectError("[Errno 111] Connection refused"), "no program listens on this port"),
        (httpx.ConnectTimeout("timed out"), "Check the address, the network and firewalls"),
        (httpx.ConnectError("[Errno -2] Name or service not known"), "unknown host name lead"),
        (httpx.ReadError(""), "ReadError"),
        (httpx.RemoteProtocolError("Server disconnected"), "write https:// in its address"),
        (httpx.ConnectError("[SSL: RECORD_LAYER_FAILURE] record layer failure"), "does not use HTTPS"),
    ],
)
def test_why_a_lead_cannot_be_reached_is_explained(error, words):
    findings, report = probe(lambda _: error)
    assert [each.severity for each in findings] == [Severity.PROBLEM]
    assert words in findings[0].sentence
    assert report is None


def test_a_lead_that_loads_is_not_ready():
    (found,), _ = probe(lambda _: refusal(503))
    assert "not ready (because)" in found.sentence


def test_a_lead_without_a_loaded_model_is_still_a_lead():
    *_, found = probe(healthy(refusal(503)))[0]
    assert "(because). Request a long answer, then run doctor again" in found.sentence


def test_another_http_server_is_not_a_lead():
    (found,), _ = probe(lambda _: httpx.Response(404))
    assert "is not a lead" in found.sentence


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(("key", "words"), [(None, "none is set"), ("k", "this one is not valid")])
def test_a_wrong_key_and_a_missing_key_are_distinguished(status, key, words):
    findings, _ = probe(healthy(refusal(status)), key)
    assert findings[-1].severity is Severity.PROBLEM
    assert f"{words}: set --key or --key-file" in findings[-1].sentence


@pytest.mark.parametrize("answer", [httpx.Response(200, text="hello"), httpx.Response(404)])
def test_another_openai_server_is_not_a_lead(answer):
    findings, report = probe(healthy(answer))
    assert findings[-1].severity is Severity.HINT
    assert report is None


def test_an_address_of_this_machine_is_recognized():
    assert is_own_address("http://127.0.0.1:5555")
    assert not is_own_address("http://192.0.2.1:5555")  # RFC 5737: reserved for documentation


def test_an_unknown_name_is_not_an_address_of_this_machine(monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert not is_own_address("http://nowhere.invalid")
