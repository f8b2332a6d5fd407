import argparse
import asyncio
import random
import socket
import subprocess
import sys

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from back.dial import RefusedError
from back.link import LeadLink
from lead.server import listening
from lead.server.listening import listen
from lead.server.server import Lead
from lead.settings.lead_settings import LeadSettings
from lead.settings.limits import RequestLimits
from shared.errors import ConfigError
from shared.tls import pinning, trusting
from tests.certificates import make_certificate
from tests.lead.serving import hang_up, hello

pytestmark = pytest.mark.both_loops


async def test_a_whole_answer_a_stream_and_a_back_are_served(lead, serve):
    lead.will_say("one two")
    served = serve()
    for stream, end in [(False, b'"finish_reason":"stop"'), (True, b"data: [DONE]")]:
        reader, writer = await served.post(stream=stream)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        await reader.readuntil(end)
        await hang_up(writer)
    await join(lead, f"ws://127.0.0.1:{served.port}/v1/speculation")


async def join(lead, url, tls=None):
    """Let a back join the lead at `url`, and leave."""
    joined = asyncio.Event()
    lead.backs._on_change = lambda _: joined.set()
    running = asyncio.ensure_future(LeadLink(url, hello(lead), random.Random(1), tls=tls).run(IdleBack()))
    async with asyncio.timeout(60):
        await joined.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_hangs_up_before_the_first_token_is_cancelled(lead, serve, stream):
    lead.will_say("one two")
    lead.engine.hold()
    _, writer = await serve().post(stream=stream)
    await lead.engine.submission.wait()
    await hang_up(writer)
    await lead.engine.cancellation.wait()
    assert lead.engine.cancelled == [lead.engine.submitted[0].sequence]
    assert list(lead.sequences) == []


async def test_a_client_that_hangs_up_in_mid_stream_is_cancelled(lead, serve):
    lead.will_say("one two")
    lead.engine.pause_after = 1
    reader, writer = await serve().post(stream=True)
    await reader.readuntil(b'"content":"one"')
    await hang_up(writer)
    await lead.engine.cancellation.wait()
    assert list(lead.sequences) == []


def test_a_taken_port_is_an_error_that_says_what_to_try():
    with listen("127.0.0.1", 0) as taken, pytest.raises(ConfigError, match="Try another --port"):
        listen("127.0.0.1", taken.getsockname()[1])


@pytest.mark.parametrize("host", ["::", "0::0"])
@pytest.mark.parametrize("reached", ["127.0.0.1", "::1"])
def test_all_addresses_of_ipv6_include_those_of_ipv4(host, reached):
    with (
        listen(host, 0) as listener,
        socket.create_connection((reached, listener.getsockname()[1])) as client,
    ):
        assert client.getpeername()[0] == reached


def test_without_dual_stack_ipv6_alone_is_listened_on(monkeypatch):
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with listen("::", 0) as listener:
        assert listener.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1


async def serve_inherited(monkeypatch, way, **options):
    """Serve on a socket for all addresses that systemd or another lead hands over. Nothing listens there."""
    served = []

    async def serve(_lead, address):
        served.append(address.host)
        address.listener.close()

    monkeypatch.setattr(Lead, "_serve", serve)
    with socket.socket() as exposed:
        exposed.bind(("0.0.0.0", 0))
        if way == "systemd":
            monkeypatch.setattr(listening, "activated_socket", lambda *_: exposed)
        else:
            monkeypatch.setattr(listening, "Predecessor", lambda _: argparse.Namespace(listener=exposed))
        await Lead(LeadSettings.from_options(takeover=way == "takeover", **options)).serve()
    return served


@pytest.mark.parametrize("way", ["systemd", "takeover"])
async def test_a_socket_that_others_reach_is_not_served_without_keys(monkeypatch, way):
    with pytest.raises(ConfigError, match=r"listen on 0\.0\.0\.0: anyone who can reach .* Set --api-key"):
        await serve_inherited(monkeypatch, way)


@pytest.mark.parametrize("options", [{"api_key": "a"}, {"insecure": True}])
@pytest.mark.parametrize("way", ["systemd", "takeover"])
async def test_a_socket_that_others_reach_is_served_with_keys_or_on_purpose(monkeypatch, way, options):
    assert await serve_inherited(monkeypatch, way, **options) == ["0.0.0.0"]


async def test_tls_is_served_to_backs_and_clients(lead, serve, tmp_path):
    made = make_certificate(tmp_path, "gpu-box")
    port = serve(tls=(made.chain, made.key)).port
    async with httpx.AsyncClient(verify=pinning(made.chain), trust_env=False) as client:
        assert (await client.get(f"https://127.0.0.1:{port}/health")).json() == {"status": "ok"}
    url = f"wss://127.0.0.1:{port}/v1/speculation"
    await join(lead, url, pinning(made.chain))
    with pytest.raises(RefusedError, match=r"is not trusted: .* --ca-file"):
        await LeadLink(url, hello(lead), random.Random(1), tls=trusting(None)).run(IdleBack())


async def test_a_tls_handshake_that_does_not_come_is_not_waited_for(serve, tmp_path):
    made = make_certificate(tmp_path, "gpu-box")
    port = serve(tls=(made.chain, made.key), limits=RequestLimits(header_seconds=0.1)).port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(30):
        assert await reader.read() == b""
    writer.close()


async def test_a_refused_websocket_is_no_error_of_ours(serve, caplog):
    url = f"ws://127.0.0.1:{serve().port}/v1/speculation"
    with pytest.raises(InvalidStatus, match="403"):
        await connect(url, origin="https://elsewhere.example", proxy=None)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_back_that_answers_no_pings_is_gone(lead, serve):
    port = serve(limits=RequestLimits(ping_seconds=0.25)).port
    names = asyncio.Queue()
    lead.backs._on_change = lambda backs: names.put_nowait(backs.names)
    url = f"ws://127.0.0.1:{port}/v1/speculation"
    async with asyncio.timeout(60), connect(url, ping_interval=None, proxy=None) as connection:
        await connection.send(hello(lead).model_dump_json())
        assert await names.get() == ["desk"]
        connection.transport.pause_reading()
        assert await names.get() == []
        connection.transport.abort()


class IdleBack:
    """A back that does nothing."""

    n_unread = 0

    def on_message(self, lead, message):
        pass


STUCK = """
import asyncio
import time
from unittest import mock
from lead.cli import run
from lead.server import server
from lead.settings.lead_settings import LeadSettings

def never_ends():
    print("stuck", flush=True)
    while True:
        time.sleep(1000)

class Announcement:
    async def start(self):
        await asyncio.to_thread(never_ends)

    async def end(self):
        pass

with mock.patch.multiple(server, companions_of=lambda _: [Announcement()], _END_SECONDS=0.5):
    run(LeadSettings(port=0, print="none", drain_seconds=0.0))
"""


def test_a_thread_that_never_ends_does_not_keep_the_lead_alive():
    command = [sys.executable, "-c", STUCK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "stuck\n"
        process.terminate()
        _, log = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "never_ends" in log  # where it was stuck


def test_a_signal_ends_a_lead_that_can_have_no_more_threads(monkeypatch):
    def none_left(*_, **__):
        raise RuntimeError("unable to start watchdog thread")

    monkeypatch.setattr("faulthandler.dump_traceback_later", none_left)
    lead = Lead(LeadSettings.from_options())
    lead._server.on_signal()
    assert lead.is_stopping
