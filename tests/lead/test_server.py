"""The lead's HTTP server on a real port: clients that hang up, and how it ends."""

import asyncio
import contextlib
import json
import random

import httpx
import pytest
import trustme
from websockets.asyncio.client import connect

from back.link import Link, RefusedError
from lead.bounds import Bounds
from lead.server import DrainingServer, listen
from shared.errors import ConfigError
from shared.protocol import Hello
from shared.tls import pinning, trusting

ASK = {"messages": [{"role": "user", "content": "Hi"}]}


class Served:
    """A running server; `shut_down` is what a signal does."""

    def __init__(self, house, drain_seconds, bounds=None, **options):
        self._listener = listen("127.0.0.1", 0)
        self.port = self._listener.getsockname()[1]
        self.server = DrainingServer(
            house.app, drain_seconds, house.sequences, house.backs.dismiss, bounds or Bounds(), **options
        )
        self.serving = asyncio.ensure_future(self.server.serve(sockets=[self._listener]))

    async def post(self, **fields):
        """A connection on which a chat request has been sent."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        body = json.dumps(ASK | fields).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: lead\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        return reader, writer

    def shut_down(self):
        self.server._on_signal()


@pytest.fixture
async def serve(house):
    """Starts servers around the house."""
    async with contextlib.AsyncExitStack() as stack:

        def start(drain_seconds=20.0, **options):
            served = Served(house, drain_seconds, **options)

            async def end():
                served.server.should_exit = served.server.force_exit = True
                await served.serving

            stack.push_async_callback(end)
            return served

        yield start


async def hang_up(writer):
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_hangs_up_before_the_first_token_is_cancelled(house, serve, stream):
    house.will_say("one two")
    house.engine.hold()
    _, writer = await serve().post(stream=stream)
    await house.engine.submission.wait()
    await hang_up(writer)
    await house.engine.cancellation.wait()
    assert house.engine.cancelled == [house.engine.submitted[0].sequence]
    assert list(house.sequences) == []


async def test_a_client_that_hangs_up_in_mid_stream_is_cancelled(house, serve):
    house.will_say("one two")
    house.engine.pause_after = 1
    reader, writer = await serve().post(stream=True)
    await reader.readuntil(b'"content":"one"')
    await hang_up(writer)
    await house.engine.cancellation.wait()
    assert list(house.sequences) == []


async def test_a_running_answer_is_finished_before_the_end(house, serve):
    house.will_say("one two")
    house.engine.pause_after = 1
    served = serve()
    reader, writer = await served.post(stream=True)
    await reader.readuntil(b'"content":"one"')
    served.shut_down()
    house.engine.release()
    rest = await reader.read()
    assert rest.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    await served.serving
    await hang_up(writer)


async def test_an_answer_that_takes_longer_than_the_drain_time_ends_with_an_error_event(house, serve):
    house.will_say("one two")
    house.engine.pause_after = 1
    served = serve(drain_seconds=0.01)
    reader, writer = await served.post(stream=True)
    await reader.readuntil(b'"content":"one"')
    served.shut_down()
    rest = await reader.read()
    assert b"the server is shutting down" in rest
    assert b"[DONE]" not in rest
    await served.serving
    await hang_up(writer)


async def test_a_whole_answer_that_takes_longer_than_the_drain_time_is_503(house, serve):
    house.engine.hold()
    served = serve(drain_seconds=0.01)
    reader, writer = await served.post()
    await house.engine.submission.wait()
    served.shut_down()
    assert (await reader.readline()).startswith(b"HTTP/1.1 503")
    await served.serving
    await hang_up(writer)


async def test_a_second_signal_does_not_wait(house, serve):
    house.engine.hold()
    served = serve(drain_seconds=3600)
    _, writer = await served.post()
    await house.engine.submission.wait()
    served.shut_down()
    served.shut_down()
    await served.serving
    await hang_up(writer)


def test_a_taken_port_is_an_error_that_says_what_to_try():
    with listen("127.0.0.1", 0) as taken, pytest.raises(ConfigError, match="try another --port"):
        listen("127.0.0.1", taken.getsockname()[1])


def test_an_ipv6_address_can_be_listened_on():
    with listen("::1", 0) as listener:
        assert listener.getsockname()[0] == "::1"


async def test_tls_is_served_to_backs_and_clients(house, serve, tmp_path):
    authority = trustme.CA()
    issued = authority.issue_cert("gpu-box")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    port = serve(tls=(certificate, key)).port
    async with httpx.AsyncClient(verify=pinning(certificate), trust_env=False) as client:
        assert (await client.get(f"https://127.0.0.1:{port}/health")).json() == {"status": "ok"}
    hello = Hello(protocol=1, name="desk", vocabulary=house.vocabulary.identify(), n_ctx=64, n_sequences=2)
    joined = asyncio.Event()
    house.backs._on_change = lambda _: joined.set()
    url = f"wss://127.0.0.1:{port}/v1/speculation"
    link = Link(url, hello, random.Random(1), tls=pinning(certificate))
    running = asyncio.ensure_future(link.run(Follower()))
    async with asyncio.timeout(20):
        await joined.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    with pytest.raises(RefusedError, match=r"is not trusted .* --ca-file"):
        await Link(url, hello, random.Random(1), tls=trusting(None)).run(Follower())


async def test_a_back_that_answers_no_pings_is_gone(house, serve):
    port = serve(bounds=Bounds(ping_seconds=0.05)).port
    hello = Hello(protocol=1, name="desk", vocabulary=house.vocabulary.identify(), n_ctx=64, n_sequences=2)
    names = asyncio.Queue()
    house.backs._on_change = names.put_nowait
    url = f"ws://127.0.0.1:{port}/v1/speculation"
    async with asyncio.timeout(20), connect(url, ping_interval=None, proxy=None) as connection:
        await connection.send(hello.model_dump_json())
        assert await names.get() == ["desk"]
        connection.transport.pause_reading()
        assert await names.get() == []
        connection.transport.abort()


class Follower:
    """A back that does nothing."""

    def tell(self, message):
        pass

    def reset(self):
        pass
