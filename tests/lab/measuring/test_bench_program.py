"""`lead bench` with real programs, and with a server of another project."""

import json
import threading

import pytest

from lab.measuring import bench_program, running_lead
from lab.measuring.measured_answer import client
from lead.cli import main
from lead.settings.lead_settings import LeadSettings
from shared import cpus
from shared.errors import EngineError
from tests.http_server import HttpServer, QuietHandler

SMALL = ("--threads", "1", "--ctx-size", "1024", "--n-predict", "8", "--n-prompts", "1")


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs `lead bench --json` with arguments; returns the result."""
    monkeypatch.setattr(running_lead, "_SETTLE_SECONDS", 0.0)

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["lead", "bench", *map(str, arguments), *SMALL, "--json"])
        main()
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("Hello!")
    return path


@pytest.mark.real
@pytest.mark.skipif(len(cpus.one_of_each_core()) < 2, reason="needs two cores")
def test_every_arrangement_answers_with_the_same_text(run, tiny_model, prompts, monkeypatch):
    model = tiny_model("llama")
    monkeypatch.setenv("LEAD_BACK", str(model))  # no part of most arrangements
    found = run("--model", model, "--draft-model", model, "--prompts", prompts)
    names = [row["way"] for row in found["rows"]]
    assert set(names[:2]) == {"no drafts", "drafts from the text itself"}  # in turns
    assert names[2] == "draft model in the engine"
    assert names[3].startswith("back on 1 core")
    assert {(row["n_same_text"], row["n_texts"]) for row in found["rows"]} == {(1, 1)}
    assert next(row for row in found["rows"] if row["way"] == "no drafts")["accepted_share"] is None
    assert "1" in found["step_ms"]
    assert "--draft-model" in found["commands"]["draft model in the engine"][0]


def test_an_arrangement_that_does_not_start_costs_only_itself(
    run, tiny_model, prompts, other_server, monkeypatch
):
    def running(settings):
        if settings.drafting.draft_model:
            raise EngineError("no memory")
        return client(other_server[0])

    monkeypatch.setattr(bench_program, "running_lead", running)
    model = tiny_model("llama")
    found = run("--model", model, "--draft-model", model, "--prompts", prompts, "--cpus", "0")
    assert {row["way"] for row in found["rows"]} == {"no drafts", "drafts from the text itself"}
    assert found["failures"] == ["draft model in the engine: no memory"]


@pytest.mark.real
def test_a_running_lead_is_measured_with_and_without_its_drafts(run, tiny_model, prompts):
    with running_lead.running_lead(lead_settings(tiny_model("llama"))) as http:
        found = run("--url", http.base_url, "--prompts", prompts)
    assert {row["way"] for row in found["rows"]} == {"no drafts", "as it runs"}


def test_any_other_server_is_measured_as_it_is(run, prompts, other_server):
    url, asked = other_server
    found = run("--url", f"{url}/v1", "--prompts", prompts, "--api-key", "secret")
    (row,) = found["rows"]
    assert (row["way"], row["n_texts"], found["step_ms"]) == ("as it runs", 1, {})
    assert row["tokens_per_second"] > 0
    assert {body["model"] for body, _ in asked} == {"theirs"}
    assert not any("cache_prompt" in body for body, _ in asked)  # others refuse fields that they do not know
    assert {key for _, key in asked} == {"Bearer secret"}


def test_a_server_that_is_not_there_is_said(run, prompts):
    with pytest.raises(SystemExit, match="does not list its models"):
        run("--url", "http://127.0.0.1:9", "--prompts", prompts)


def test_a_model_that_cannot_be_loaded_is_said(run, prompts):
    with pytest.raises(SystemExit, match=r"missing\.gguf"):
        run("--model", "missing.gguf", "--prompts", prompts)


def lead_settings(model):
    return LeadSettings.from_command_line(["--model", str(model), "--threads", "1", "--ctx-size", "1024"])


@pytest.fixture
def other_server():
    """The URL of a server that knows only OpenAI's fields, and (body, Authorization) of its requests."""
    asked = []

    class Handler(QuietHandler):
        def do_GET(self):
            known = self.path == "/v1/models"
            self.reply(
                200 if known else 404, {"data": [{"id": "theirs"}]} if known else {}, "application/json"
            )

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked.append((body, self.headers["authorization"]))
            usage = {"choices": [], "usage": {"completion_tokens": 2}}
            events = [*({"choices": [{"delta": {"content": each}}]} for each in "ab"), usage]
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for event in events:
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
                self.wfile.flush()
                threading.Event().wait(0.01)  # two arrivals

        def reply(self, status, body, kind):
            self.send_response(status)
            self.send_header("content-type", kind)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

    with HttpServer(Handler) as server:
        yield server.url, asked
