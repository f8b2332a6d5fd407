"""Real processes compute texts, even if a process dies meanwhile."""

import asyncio
import logging
import os
import signal
from array import array
from contextlib import asynccontextmanager

import pytest

from lead.embeddings.encoder_client import EncoderClient
from lead.embeddings.encoder_messages import EncodedText, LoadEncoder
from lead.embeddings.encoder_process import EncoderProcess
from lead.engine_client.engine_state import EngineState
from lead.tokenizer.fair_queue import Client
from shared.errors import ModelLoadError, NotServingError, UnavailableError

CLIENT = Client("a")


def texts(n, n_tokens=5):
    return [EncodedText(array("i", range(5 + i % 20, 5 + i % 20 + n_tokens))) for i in range(n)]


@asynccontextmanager
async def running(path, **options):
    encoder = EncoderClient(LoadEncoder(path, 1), ["error"], **options)
    run = asyncio.ensure_future(encoder.run())
    try:
        await asyncio.wait(
            [run, asyncio.ensure_future(encoder.has_been_ready.wait())], return_when=asyncio.FIRST_COMPLETED
        )
        yield encoder
    finally:
        encoder.stop()
        await run


async def test_vectors_come_in_order_for_all_clients(bert):
    async with running(bert) as encoder:
        many, few = await asyncio.gather(
            encoder.encode(CLIENT, texts(200)), encoder.encode(Client("b"), texts(3))
        )
        assert len(many) == 200
        assert [array("f", each).tolist() for each in many[:3]] == [
            pytest.approx(array("f", each).tolist(), abs=1e-3) for each in few
        ]
        assert encoder.ready.n_out * 4 == len(few[0])


async def test_a_process_that_is_killed_is_replaced_and_nobody_notices(bert, caplog):
    caplog.set_level(logging.CRITICAL)
    async with running(bert) as encoder:
        before = await encoder.encode(CLIENT, texts(4))
        computing = asyncio.ensure_future(encoder.encode(CLIENT, texts(4)))
        await asyncio.sleep(0)
        os.kill(encoder._keeper.child.pid, signal.SIGKILL)
        assert [array("f", each).tolist() for each in await computing] == [
            pytest.approx(array("f", each).tolist(), abs=1e-3) for each in before
        ]


async def test_a_process_that_is_stopped_is_killed_for_its_silence(bert, caplog):
    caplog.set_level(logging.CRITICAL)
    async with running(bert, timeout=5.0) as encoder:
        os.kill(encoder._keeper.child.pid, signal.SIGSTOP)
        assert len(await encoder.encode(CLIENT, texts(2))) == 2


async def test_a_model_that_nobody_uses_is_freed_until_somebody_asks(bert):
    async with running(bert, sleep_seconds=0.05) as encoder:
        while encoder.state is not EngineState.SLEEPING:
            await encoder._keeper.wait()
        assert len(await encoder.encode(CLIENT, texts(2))) == 2


async def test_who_wakes_a_model_that_cannot_be_loaded_any_more_is_told(bert, tmp_path, caplog):
    caplog.set_level(logging.CRITICAL)
    path = tmp_path / "model.gguf"
    path.write_bytes(bert.read_bytes())
    async with running(path, sleep_seconds=0.05) as encoder:
        while encoder.state is not EngineState.SLEEPING:
            await encoder._keeper.wait()
        path.unlink()
        with pytest.raises(UnavailableError, match="model"):
            await asyncio.wait_for(encoder.encode(CLIENT, texts(2)), 20)


async def test_texts_do_not_wait_for_ever_for_a_process_that_crashes_while_it_loads(
    bert, caplog, monkeypatch
):
    caplog.set_level(logging.CRITICAL)

    async def crash(log_options, *, needs_gpu):
        assert log_options
        assert not needs_gpu
        return await EncoderProcess.connected(lambda _: ["false"], stop_seconds=1.0)

    async with running(bert, sleep_seconds=0.05) as encoder:
        while encoder.state is not EngineState.SLEEPING:
            await encoder._keeper.wait()
        monkeypatch.setattr(EncoderProcess, "start", crash)
        encoder._keeper._supervisor.max_deaths = 2
        with pytest.raises(UnavailableError):
            await asyncio.wait_for(encoder.encode(CLIENT, texts(2)), 20)


async def test_a_file_that_cannot_be_loaded_is_refused_in_a_sentence(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    encoder = EncoderClient(LoadEncoder(path, 1), ["error"])
    with pytest.raises(ModelLoadError, match=r"is a text model"):
        await encoder.run()
    with pytest.raises(NotServingError):
        await encoder.encode(CLIENT, texts(1))


async def test_who_leaves_is_not_waited_for(bert):
    async with running(bert) as encoder:
        leaving = asyncio.ensure_future(encoder.encode(CLIENT, texts(500)))
        await asyncio.sleep(0)
        leaving.cancel()
        assert len(await encoder.encode(Client("b"), texts(1))) == 1
