import asyncio
import logging
import os
import signal
import sys

import numpy as np
import pytest

from lead.images.image_encoder import _state_of
from lead.images.messages import EncoderOptions
from shared.errors import ModelLoadError, RequestError, UnavailableError, UnsupportedError
from shared.image_span import row_identities
from shared.supervisor import ChildState
from tests.image_files import bmp, gif, hostile, png

PICTURE = png(60, 40)
LIMIT = 10
UNREADABLE = "messages: an image cannot be read: "


async def test_an_image_becomes_rows_between_tokens(see, sight):
    sees = await see(sight("gemma3"))
    image = await sees.read(PICTURE)
    (span,) = image.spans
    assert (span.n_rows, span.n_positions, span.width, span.whole) == (16, 16, 0, True)
    assert image.tokens[span.start : span.end] == row_identities(span.key, 16)
    assert len(sees.rows(image)) == 16 * 64 * 4
    assert (await sees.encoder.memory()).max_whole == 16


async def test_rows_of_a_grid_take_fewer_positions(see, sight):
    sees = await see(sight("qwen2vl"))
    (span,) = (await sees.read(png(200, 300))).spans
    assert (span.n_rows, span.n_positions, span.width, span.whole) == (77, 11, 7, False)
    assert (await sees.encoder.memory()).max_whole == 0


@pytest.mark.parametrize(
    ("kind", "n_rows"), [("qwen2.5vl", [77]), ("pixtral", [314]), ("mistral3", [87]), ("idefics3", [4] * 7)]
)
async def test_other_kinds_are_rows_that_are_read_as_tokens_are(see, sight, kind, n_rows):
    sees = await see(sight(kind))
    image = await sees.read(png(200, 300))
    assert [span.n_rows for span in image.spans] == n_rows
    assert (await sees.encoder.memory()).max_whole == 0


async def test_a_model_without_the_tokens_around_an_image_is_refused_at_the_start(see, sight):
    options = sight("idefics3")
    sees = await see(options.model_copy(update={"model": sight("pixtral").model}))
    with pytest.raises(ModelLoadError, match="vocabulary lacks"):
        await sees.encoder.memory()


@pytest.mark.parametrize("make", [png, bmp, gif])
async def test_formats_that_are_read(see, sight, make):
    sees = await see(sight("gemma3"))
    assert len((await sees.read(make(20, 10))).spans) == 1


async def test_an_image_is_encoded_once(see, sight):
    sees = await see(sight("gemma3"))
    first, again = await asyncio.gather(sees.read(PICTURE), sees.read(PICTURE, "b"))
    assert first is again is await sees.read(PICTURE)
    assert sees.encoder.n_encoded == 1


async def test_rows_are_rounded_as_flash_attention_does_only_where_that_may_be(see, sight):
    found = {}
    for kind in ("auto", "on", "off"):
        sees = await see(sight("qwen2vl").model_copy(update={"flash_attn": kind}))
        image = await sees.read(png(90, 70))
        found[kind] = image.spans[0].key, np.frombuffer(sees.rows(image), np.float32)
    assert (found["auto"][1] == found["on"][1]).all()
    assert 0 < np.abs(found["off"][1] - found["on"][1]).max() < 0.1
    assert found["off"][0] != found["on"][0]


async def test_other_pictures_are_other_rows(see, sight):
    sees = await see(sight("gemma3"))
    first, second = await sees.read(png(60, 40, 1)), await sees.read(png(60, 40, 2))
    assert first.spans[0].key != second.spans[0].key
    assert first.marker != second.marker
    assert sees.rows(first) != sees.rows(second)


async def test_earlier_images_give_way_but_those_in_use_stay(see, sight):
    sees = await see(sight("gemma3"), cache_bytes=16 * 64 * 4 * 2)
    kept = await sees.read(png(8, 8, 0))
    before = sees.rows(kept)
    for seed in range(1, 5):
        await sees.read(png(8, 8, seed))
    assert sees.rows(kept) == before


async def test_images_in_use_may_fill_the_memory(see, sight):
    sees = await see(sight("gemma3"), cache_bytes=16 * 64 * 4)
    image = await sees.read(png(8, 8, 0))
    with pytest.raises(UnavailableError, match="try again"):
        await sees.read(png(8, 8, 1))
    del image
    sees.encoder._kept.clear()
    await sees.read(png(8, 8, 1))


async def test_an_image_larger_than_the_memory_is_refused(see, sight):
    sees = await see(sight("gemma3"), cache_bytes=1024)
    with pytest.raises(RequestError, match="larger than --image-cache"):
        await sees.read(PICTURE)


async def test_hostile_files_get_a_sentence_and_others_an_answer(see, sight):
    sees = await see(sight("gemma3").model_copy(update={"task_bytes": 1 << 28, "decode_seconds": 2.0}))
    files, n_read = list(hostile()), 0
    assert len(files) > 300
    for name, data in files:
        async with asyncio.timeout(LIMIT):
            (found,) = await asyncio.gather(sees.read(data), return_exceptions=True)
        is_refused = isinstance(found, RequestError) and str(found).startswith(UNREADABLE)
        assert is_refused or found.spans, name
        n_read += not is_refused
    assert n_read < 60  # random damage may leave a picture
    assert len((await sees.read(PICTURE)).spans) == 1


async def test_a_process_that_was_killed_is_started_again(see, sight):
    sees = await see(sight("gemma3"))
    await sees.read(PICTURE)
    os.kill(sees.pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        while True:
            try:
                await sees.read(png(60, 40, 1))
                break
            except UnavailableError:
                continue


async def test_a_process_that_was_stopped_is_killed_and_the_next_one_answers(see, sight, monkeypatch):
    monkeypatch.setattr("lead.images.image_encoder._HUNG_SECONDS", 0.3)
    sees = await see(sight("gemma3"))
    await sees.read(PICTURE)
    os.kill(sees.pid, signal.SIGSTOP)
    with pytest.raises(UnavailableError, match="try again"):
        await sees.read(png(60, 40, 1))
    monkeypatch.undo()  # on a busy machine the next one takes longer
    assert len((await sees.read(png(60, 40, 2))).spans) == 1


async def test_who_leaves_does_not_stop_the_image_of_others(see, sight):
    sees = await see(sight("gemma3"))
    leaving = asyncio.ensure_future(sees.read(PICTURE))
    staying = asyncio.ensure_future(sees.read(PICTURE, "b"))
    await asyncio.sleep(0)
    leaving.cancel()
    assert len((await staying).spans) == 1


async def test_processes_that_die_before_one_is_ready_are_given_up(see, tmp_path, monkeypatch):
    monkeypatch.setattr("shared.supervisor._FIRST_DELAY", 0.001)
    monkeypatch.setattr("lead.images.image_encoder.child_command", lambda *_: ["false"])
    sees = await see(EncoderOptions(model=tmp_path / "a.gguf", projector=tmp_path / "mmproj.gguf"))
    async with asyncio.timeout(LIMIT):
        with pytest.raises(ModelLoadError, match="before it was ready"):
            await sees.encoder.memory()


async def test_nobody_waits_for_processes_that_crash_while_they_load(see, tmp_path, monkeypatch):
    script = (
        "import socket, sys\n"
        "from lead.images.messages import ProjectorReady, framed\n"
        "front = socket.socket(fileno=int(sys.argv[1]))\n"
        "front.sendall(framed(ProjectorReady(n_embd=8, n_vocab=10)))"
    )
    monkeypatch.setattr(
        "lead.images.image_encoder.child_command", lambda _, *given: [sys.executable, "-c", script, *given]
    )
    sees = await see(EncoderOptions(model=tmp_path / "a.gguf", projector=tmp_path / "mmproj.gguf"))
    await sees.encoder.memory()
    monkeypatch.setattr("lead.images.image_encoder.child_command", lambda *_: ["false"])
    async with asyncio.timeout(LIMIT):
        while sees.encoder._keeper.state is not ChildState.RESTARTING:
            await sees.encoder._keeper.wait()
        with pytest.raises(UnavailableError, match="try again"):
            await sees.read(PICTURE)


async def test_whoever_waits_is_told_that_the_files_cannot_be_loaded_any_more(
    see, sight, tmp_path, caplog, monkeypatch
):
    caplog.set_level(logging.CRITICAL)
    monkeypatch.setattr("shared.supervisor._FIRST_DELAY", 0.001)
    options = sight("gemma3")
    projector = tmp_path / "mmproj.gguf"
    projector.write_bytes(options.projector.read_bytes())
    sees = await see(options.model_copy(update={"projector": projector}))
    await sees.read(PICTURE)
    projector.unlink()
    os.kill(sees.pid, signal.SIGKILL)
    async with asyncio.timeout(LIMIT):
        while True:
            with pytest.raises(UnavailableError) as told:
                await sees.read(png(60, 40, 1))
            if "does not exist" in str(told.value):
                break


async def test_a_model_that_lacks_what_one_image_needs_is_not_called_a_damaged_image(see, sight, monkeypatch):
    script = (
        "from lead.images import image_encoder_process as process\n"
        "from shared.errors import ModelLoadError\n"
        "def encode(*_):\n"
        "    raise ModelLoadError('--mmproj: belongs to another model')\n"
        "process.Projector.encode = encode\n"
        "process.main()"
    )
    monkeypatch.setattr(
        "lead.images.image_encoder.child_command", lambda _, *given: [sys.executable, "-c", script, *given]
    )
    sees = await see(sight("gemma3"))
    with pytest.raises(UnsupportedError, match="belongs to another model"):
        await sees.read(PICTURE)


@pytest.mark.parametrize("name", ["no/file.gguf", "target"])
async def test_a_file_that_is_no_projector_is_refused_at_the_start(see, sight, name, target):
    options = sight("gemma3")
    path = target if name == "target" else options.projector.parent / name
    sees = await see(options.model_copy(update={"projector": path}))
    with pytest.raises(ModelLoadError, match="--mmproj: "):
        await sees.encoder.memory()


async def test_an_image_that_does_not_fit_into_a_batch_is_refused_at_the_start(see, sight):
    sees = await see(sight("gemma3"), max_whole=8)
    with pytest.raises(ModelLoadError, match="--ubatch-size 16 or more"):
        await sees.encoder.memory()


async def test_what_the_process_says_is_not_believed(see, sight, monkeypatch):
    sees = await see(sight("gemma3"))
    await sees.read(PICTURE)
    monkeypatch.setattr("lead.images.image_encoder.MAX_ROWS", 1)
    with pytest.raises(RequestError, match="crashes the image process"):
        await sees.read(png(60, 40, 1))


@pytest.mark.parametrize("change", [{"max_tokens": 8}, {"offload": True}, {"flash_attn": "off"}])
def test_rows_that_are_computed_in_another_way_have_another_key(tmp_path, change):
    projector = tmp_path / "mmproj.gguf"
    projector.touch()
    options = EncoderOptions(model="m", projector=projector)
    assert _state_of(options.model_copy(update=change)) != _state_of(options)


def test_options_have_bounds():
    options = EncoderOptions(model="m", projector="p")
    assert options.task_bytes <= 2 << 30
    assert options.decode_seconds < LIMIT
