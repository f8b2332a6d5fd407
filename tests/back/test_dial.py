"""Answers to an attempt to connect, by a lead or by something else at its address."""

import asyncio
import contextlib
import re
import ssl

import pytest

from back.dial import ConnectionLog, RefusedError
from back.link import LeadLink
from tests.back.linking import (
    HELLO,
    OPEN,
    WELCOME,
    NoDelays,
    Recorder,
    answering,
    dial_three_times,
    linked,
    saying,
)
from tests.certificates import make_certificate


@contextlib.asynccontextmanager
async def server_of(reply, tls=None):
    """The port of a server that sends `reply` and hangs up."""

    async def answer(_, writer):
        writer.write(reply)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1]


async def test_http_to_a_lead_with_a_certificate_suggests_https(tmp_path, caplog):
    made = make_certificate(tmp_path, "gpu-box")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.chain, made.key)
    async with server_of(b"", tls) as port:
        with caplog.at_level("INFO", logger="back"):
            await dial_three_times(f"ws://127.0.0.1:{port}/")
    assert "(it closed the connection. If it serves HTTPS, write https:// in its address)" in caplog.text


async def test_https_to_a_lead_without_a_certificate_suggests_http(caplog):
    async with server_of(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        with caplog.at_level("INFO", logger="back"):
            await dial_three_times(f"wss://127.0.0.1:{port}/", ssl.create_default_context())
    assert "(it does not use HTTPS. Write http:// in its address)" in caplog.text


async def test_the_key_is_sent_in_the_handshake():
    shown = []

    def process_request(_connection, request):
        shown.append(request.headers["Authorization"])

    leads = linked(saying(WELCOME, OPEN), key="secret", process_request=process_request)
    async with leads as (_, listener, _r):
        assert await listener.received.get() == OPEN
    assert shown == ["Bearer secret"]


@pytest.mark.parametrize(
    ("status", "body", "complaint"),
    [
        (
            401,
            '{"error": {"message": "no such key"}}',
            r"no such key\. Set the lead's key for backs with --key-file or BACK_KEY",
        ),
        (403, '{"error": {"message": "not for clients"}}', "refuses this back: not for clients"),
        (403, "<html>", "refuses this back: HTTP 403"),
        (403, '{"error": 5}', "refuses this back: HTTP 403"),
    ],
)
async def test_a_refused_handshake_raises_with_the_reason_of_the_lead(status, body, complaint):
    async with linked(saying(), process_request=answering(status, body)) as (_, _listener, running):
        with pytest.raises(RefusedError, match=complaint):
            await running


@pytest.mark.parametrize(
    ("location", "words"),
    [
        (
            "https://gpu.example/v1/speculation",
            "redirects to https://gpu.example. Use this address for --lead",
        ),
        ("http://gpu.example:5555/duo/v1/speculation", "redirects to http://gpu.example:5555/duo. Use"),
        ("nonsense:", "redirects to nonsense:. Use"),
    ],
)
async def test_a_redirect_raises_with_the_address_to_use(location, words):
    def process_request(connection, _request):
        response = connection.respond(301, "moved")
        response.headers["Location"] = location
        return response

    async with linked(saying(), process_request=process_request) as (_, _listener, running):
        with pytest.raises(RefusedError, match=re.escape(words)):
            await running


@pytest.mark.parametrize("url", ["http://host/", "ws://host:port/", "ws://gpu..example/", "ws://[::1/"])
async def test_an_invalid_address_raises_with_a_sentence(url):
    with pytest.raises(RefusedError, match="is not the address of a lead"):
        await LeadLink(url, HELLO, NoDelays()).run(Recorder())


URL = "ws://lead/"
CONNECTED = "drafting for ws://lead/ as b"


@pytest.fixture
def log(caplog):
    caplog.set_level("INFO", "back")
    return ConnectionLog(URL)


def flap(log, n):
    for _ in range(n):
        log.connected("b")
        log.lost("closed")


def test_a_lost_connection_is_reported(log, caplog):
    log.connected("b")
    log.stable()
    log.lost("closed")
    assert caplog.messages[1:] == ["lost the connection to the lead at ws://lead/ (closed): reconnecting"]


def test_a_lead_that_stays_unreachable_is_reported_once(log, caplog):
    for _ in range(5):
        log.unreachable("refused")
    assert caplog.messages == ["no lead at ws://lead/ (refused): trying again until a lead answers"]


def test_a_lead_that_keeps_closing_the_connection_does_not_fill_the_log(log, caplog):
    flap(log, 100)
    assert len(caplog.messages) == 6
    assert caplog.messages[-1] == (
        "the connection to the lead at ws://lead/ breaks repeatedly (closed). "
        "Reconnecting silently until a connection lasts 10 s"
    )


def test_a_lead_that_restarts_in_a_loop_does_not_fill_the_log(log, caplog):
    for _ in range(100):
        flap(log, 1)
        log.unreachable("refused")
    assert len(caplog.messages) == 8
    assert "breaks repeatedly" in caplog.messages[-1]


def test_a_stable_connection_to_a_lead_that_kept_closing_it_is_reported(log, caplog):
    flap(log, 10)
    log.connected("b")
    n_before = len(caplog.messages)
    log.stable()
    assert caplog.messages[n_before:] == [CONNECTED]


def test_after_a_stable_connection_each_change_is_reported_again(log, caplog):
    flap(log, 10)
    log.connected("b")
    log.stable()
    n_before = len(caplog.messages)
    log.lost("closed")
    log.connected("b")
    assert len(caplog.messages) == n_before + 2


def test_a_stable_connection_is_reported_once(log, caplog):
    log.connected("b")
    log.stable()
    assert caplog.messages == [CONNECTED]
