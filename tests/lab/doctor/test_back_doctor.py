"""`back doctor`: joining a lead for a moment, and timing the draft model."""

import asyncio
import contextlib
import re

import pytest
from websockets.asyncio.server import serve

from back.dial import RefusedError
from back.settings import BackSettings
from lab.doctor import back_doctor as doctor
from lab.doctor.back_doctor import diagnose, measure_round_trip, measure_step
from lab.parts.processes import free_port
from shared.errors import ProtocolError
from shared.llama import library
from shared.llama.vocabulary import Vocabulary
from shared.model_files.builtin import builtin_target
from shared.protocol import Refused, Tune
from tests.back.linking import HELLO
from tests.certificates import make_certificate
from tests.lead.fakes import ScriptedLead
from tests.lead.serving import serving


@contextlib.asynccontextmanager
async def lead_that_says(message):
    async def probe(connection):
        await connection.recv()
        await connection.send(message.model_dump_json())
        with contextlib.suppress(Exception):
            await connection.recv()

    async with serve(probe, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"ws://127.0.0.1:{port}/v1/speculation"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Refused(reason="the vocabularies differ"), "vocabularies differ"),
        (Tune(n_ahead=1, min_confidence=0), "tune"),
    ],
)
async def test_all_else_is_an_error_with_the_leads_reason(message, words):
    async with lead_that_says(message) as url:
        with pytest.raises((RefusedError, ProtocolError), match=words):
            await measure_round_trip(url, HELLO, None)


async def test_a_back_that_translates_is_told_so_and_what_to_expect(monkeypatch, tmp_path):
    monkeypatch.setattr("shared.translation.stored_pair.user_cache_path", lambda _name: tmp_path)
    async with serving(ScriptedLead(Vocabulary.load(builtin_target()))) as start:
        settings = BackSettings(lead=f"http://127.0.0.1:{start().port}")
        model = doctor._load(settings)
        monkeypatch.setattr(model.vocabulary, "identify", lambda: HELLO.vocabulary)
        monkeypatch.setattr(doctor, "_load", lambda _settings: model)
        report = await asyncio.to_thread(diagnose, settings)
    assert "this back translates" in str(report)
    assert "100 % of its tokens have an exact counterpart" in str(report)
    assert re.search(r"Expect about (9\d|100) % of the acceptance", str(report))


@pytest.fixture
async def lead_with_tls(tmp_path):
    """(port, certificate) of a lead called localhost."""
    made = make_certificate(tmp_path, "localhost")
    async with serving(ScriptedLead(Vocabulary.load(builtin_target()))) as start:
        yield start(tls=(made.chain, made.key)).port, made


async def test_a_lead_with_tls_is_asked_and_joined(lead_with_tls):
    port, made = lead_with_tls
    settings = BackSettings(lead=f"https://localhost:{port}", ca_file=made.authority)
    report = await asyncio.to_thread(diagnose, settings)
    assert "the lead accepts this back" in str(report)


def test_a_file_of_authorities_that_is_not_there_is_said(tmp_path):
    settings = BackSettings(lead="https://localhost", ca_file=tmp_path / "nowhere.pem")
    assert "cannot read certificates from" in str(diagnose(settings))


def test_without_a_lead_the_draft_model_is_timed_all_the_same():
    report = diagnose(BackSettings(lead=f"http://127.0.0.1:{free_port()}"))
    assert report.status == 1
    assert "no program listens on this port" in str(report)
    assert "drafting a token takes" in str(report)
    assert f"CPU kernel: {library.describe_kernel()}" in str(report)


def test_a_model_that_is_not_there_is_said(tmp_path):
    report = diagnose(BackSettings.from_options(model=tmp_path / "nowhere.gguf"))
    assert report.status == 1
    assert "does not exist" in str(report)


class Steady:
    def decode(self, spans):
        assert [len(span.tokens) for span in spans] == [1]


def test_a_step_is_timed_by_its_median():
    ticks = iter([0.0, 9.0] + [10.0 + i / 100 for i in range(46)])  # the first step takes long
    assert measure_step(Steady(), lambda: next(ticks)) == pytest.approx(0.01)


def test_of_several_leads_one_has_to_be_named():
    report = diagnose(BackSettings(lead="http://a:1,http://b:1"))
    assert report.status == 1
    assert "Set --lead once" in str(report)
