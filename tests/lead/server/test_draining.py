import asyncio
import contextlib
import logging
from email.utils import parsedate_to_datetime

import httpx
import pytest
from fastapi import Request
from fastapi.responses import PlainTextResponse
from websockets.asyncio.client import connect
from websockets.frames import CloseCode

from lead.server.draining import DrainingServer
from lead.server.listening import listen
from lead.settings.lead_settings import LeadSettings
from tests.certificates import make_certificate
from tests.lead.serving import HANDSHAKE, hang_up, hello

pytestmark = pytest.mark.both_loops

LONG = 3600.0
"""A drain time that no test waits for."""


@pytest.fixture
async def midway(lead, serve):
    """A server in the middle of a streamed answer, and the client's side of it."""
    lead.will_say("one two")
    lead.engine.pause_after = 1
    served = serve(drain_seconds=LONG)
    reader, writer = await served.post(stream=True)
    await reader.readuntil(b'"content":"one"')
    yield served, reader
    await hang_up(writer)


@contextlib.asynccontextmanager
async def joined(lead, served):
    """A connection of a back that the lead has welcomed."""
    async with connect(f"ws://127.0.0.1:{served.port}/v1/speculation", proxy=None) as socket:
        await socket.send(hello(lead).model_dump_json())
        assert "welcome" in await socket.recv()
        yield socket


async def test_what_a_platform_tells_web_servers_about_workers_is_not_for_the_lead(serve, monkeypatch):
    monkeypatch.setenv("WEB_CONCURRENCY", "auto")
    served = serve()
    served.shut_down()
    await served.serving


async def test_another_socket_may_be_served_before_its_own(lead):
    async def on_drained():
        pass

    server = DrainingServer(
        lead.app, LeadSettings(), lead.sequences, on_drain=lambda: None, on_drained=on_drained
    )
    listeners = [listen("127.0.0.1", 0) for _ in range(2)]
    ports = [each.getsockname()[1] for each in listeners]
    server.listen_also(listeners[0], None, {})
    serving = asyncio.ensure_future(server.serve(sockets=listeners[1:]))
    await server.accepting.wait()
    for port in ports:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await hang_up(writer)
    for _ in range(3):
        server.on_signal()
    await serving
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)


ENDS = pytest.mark.parametrize(
    ("drain_seconds", "n_signals"), [(0.01, 1), (LONG, 2)], ids=["after the drain time", "a second signal"]
)


@ENDS
async def test_a_stream_that_is_cut_off_ends_with_an_error_event(lead, serve, drain_seconds, n_signals):
    lead.will_say("one two")
    lead.engine.pause_after = 1
    served = serve(drain_seconds=drain_seconds)
    reader, writer = await served.post(stream=True)
    await reader.readuntil(b'"content":"one"')
    for _ in range(n_signals):
        served.shut_down()
    rest = await reader.read()
    assert b"the server is shutting down" in rest
    assert b"[DONE]" not in rest
    await served.serving
    await hang_up(writer)


@ENDS
async def test_a_whole_answer_that_is_cut_off_is_503(lead, serve, drain_seconds, n_signals):
    lead.engine.hold()
    served = serve(drain_seconds=drain_seconds)
    reader, writer = await served.post()
    await lead.engine.submission.wait()
    for _ in range(n_signals):
        served.shut_down()
    assert (await reader.readline()).startswith(b"HTTP/1.1 503")
    await served.serving
    await hang_up(writer)


@pytest.mark.parametrize("n_signals", [1, 2, 3])
async def test_an_end_leaves_no_trace_in_the_log(midway, caplog, n_signals):
    served, _ = midway
    served.server._settings = served.server._settings.model_copy(update={"drain_seconds": 0.01})
    for _ in range(n_signals):
        served.shut_down()
    await served.serving
    assert [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR] == []


async def test_a_connection_that_takes_nothing_is_cut(lead, serve, monkeypatch, caplog):
    monkeypatch.setattr("lead.server.draining._ABORT_SECONDS", 0.0)
    # so that the answer hangs
    monkeypatch.setattr("lead.engine_client.sequences.Sequences.fail_all", lambda *_: None)
    lead.engine.hold()
    served = serve(drain_seconds=LONG)
    _, writer = await served.post(stream=True)
    await lead.engine.submission.wait()
    served.shut_down()
    served.shut_down()
    await served.serving
    assert lead.engine.cancelled
    assert [record for record in caplog.records if record.exc_info] == []
    await hang_up(writer)


async def test_the_first_signal_says_how_long_answers_have(midway, caplog):
    caplog.set_level(logging.INFO, "lead")
    served, _ = midway
    served.shut_down()
    async with asyncio.timeout(60):
        await served.draining.wait()
    served.shut_down()
    await served.serving
    assert (
        "stopping: 1 answer has up to 3600 s to finish (--drain-seconds). Press Ctrl-C again to stop at once"
        in caplog.text
    )


async def test_a_back_stays_until_the_last_answer_is_done(lead, midway):
    served, reader = midway
    async with joined(lead, served) as socket:
        served.shut_down()
        await served.draining.wait()
        lead.engine.release()
        rest = await reader.read()
        assert b"[DONE]" in rest
        await served.serving
        assert served.backs_at_the_end == ["desk"]
        await socket.wait_closed()
        assert socket.close_code == CloseCode.SERVICE_RESTART


async def test_a_back_does_not_hold_up_an_end_without_answers(lead, serve):
    served = serve(drain_seconds=LONG)
    async with joined(lead, served):
        served.shut_down()
        async with asyncio.timeout(60):
            await served.serving


async def test_a_websocket_whose_peer_said_goodbye_but_reads_nothing_does_not_disturb_the_end(
    serve, monkeypatch
):
    monkeypatch.setattr("lead.server.draining._ABORT_SECONDS", 0.0)
    heard = asyncio.Event()

    async def app(_scope, receive, send):
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "bytes": bytes(16 << 20)})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        heard.set()

    served = serve(drain_seconds=LONG)
    served.server.config.app = app
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(HANDSHAKE)
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.pause_reading()
    writer.write(b"\x88\x80" + bytes(4))  # RFC 6455: a close frame without a reason
    async with asyncio.timeout(60):
        await heard.wait()
    served.shut_down()
    await served.serving
    writer.transport.abort()


async def get(served, path):
    """The status line, headers and body of a response on its own connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: lead\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    body = await reader.readexactly(length)
    await hang_up(writer)
    return head, body


async def test_before_the_port_is_closed_routers_are_told_and_requests_answered(serve):
    served = serve(drain_notice_seconds=LONG)
    await get(served, "/health")
    served.shut_down()
    while not (await get(served, "/health"))[0].startswith(b"HTTP/1.1 503 "):
        pass
    assert b'"draining"' in (await get(served, "/health"))[1]
    head, loads = await get(served, "/loads")
    assert b'"draining":true' in loads.replace(b" ", b"")
    assert b"connection: close" in head.lower()
    served.shut_down()
    await served.serving


async def test_a_client_on_this_machine_cannot_choose_its_address(lead, serve):
    async def tell(request: Request):
        return PlainTextResponse(request.client.host)

    lead.app.add_route("/me", tell)
    served = serve(drain_seconds=LONG)
    url = f"http://127.0.0.1:{served.port}/me"
    async with httpx.AsyncClient(trust_env=False, headers={"X-Forwarded-For": "192.0.2.1"}) as client:
        assert (await client.get(url)).text == "127.0.0.1"


async def test_a_response_is_dated(serve):
    served = serve(drain_seconds=LONG)
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"http://127.0.0.1:{served.port}/health")
    assert parsedate_to_datetime(answer.headers["date"]).tzinfo


async def test_a_replaced_server_answers_on_the_connections_that_it_has(lead, serve):
    lead.will_say("one two")
    lead.engine.pause_after = 1
    served = serve(drain_seconds=0.0)
    reader, writer = await served.post(stream=True)
    await reader.readuntil(b'"content":"one"')
    served.server.replace()
    lead.engine.release()
    assert b"data: [DONE]\n\n" in await reader.readuntil(b"\r\n0\r\n\r\n")
    await hang_up(writer)  # one that is kept open is closed by uvicorn after seconds
    await served.serving


async def test_a_replaced_lead_waits_for_a_handshake_that_has_begun(serve, tmp_path):
    made = make_certificate(tmp_path, "localhost")
    served = serve(tls=(made.chain, made.key))
    await served.server.accepting.wait()
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    for _ in range(10):
        await asyncio.sleep(0)
    served.server.replace()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not served.draining.is_set()
    await hang_up(writer)
    await served.serving
