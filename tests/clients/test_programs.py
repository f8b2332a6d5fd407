"""Programs of other projects, unchanged from the index, each in its usual use with a real lead."""

import functools
import json
import os
import subprocess
import sys
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from gguf import GGUFReader

from lab.parts.processes import start_lead
from tests.http_server import HttpServer
from tests.minilm import tiny_bert
from tests.real.processes import LEAD

BIN = Path(sys.prefix) / "client-programs/bin"
ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.real,
    pytest.mark.clients,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not (BIN / "python").is_file(), reason="the clients are not installed: make clients"),
]
GRILL = """
name: lead
backends: [{{name: lead, url: "{url}", type: llamacpp}}]
models: [{{name: any, max_tokens: 16}}]
conversations:
  - name: two turns
    turns:
      - {{role: system, content: Be brief.}}
      - {{role: user, content: Hello!}}
      - {{role: user, content: Bye!}}
targets: [{{backend: lead, model: any, conversation: two turns}}]
load: {{concurrent_users: 2}}
"""
LLM_MODELS = """
- {{model_id: chat, model_name: any, api_base: "{url}/v1", supports_schema: true, supports_tools: true}}
- {{model_id: text, model_name: any, api_base: "{url}/v1", completion: true}}
"""


@pytest.fixture(scope="module")
def url(smollm2):
    slots = ("--parallel", "2", "--ctx-size", "16384")
    lead, url = start_lead("--model", str(smollm2), "--threads", "1", "--no-calibrate", "--metrics", *slots)
    with lead:
        yield url


@pytest.fixture
def run(tmp_path):
    """Runs a program to its end, with a home of its own; returns its output."""
    environment = os.environ | {
        "HOME": str(tmp_path),
        "LLM_USER_PATH": str(tmp_path),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # it would ask the network for prices
        "NO_PROXY": "127.0.0.1",
    }
    environment.pop("PYTHONPATH", None)

    def run(program, *arguments):
        done = subprocess.run(
            [BIN / program, *map(str, arguments)],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run.environment = environment
    return run


# Errors of a small model that finds no way to the end, although the lead did all that was asked.
MODEL_ERRORS = {
    *(None, "ToolCallError", "ToolExecutionError"),
    *("MaxIterationsError", "StepEnforcementError", "PrerequisiteError"),
}


def test_lucebench_measures_without_an_error(run, url, tmp_path):
    """A question of each kind: chats, long prompts, tools by both APIs."""
    limits = ("--questions", "1", "--max-tokens", "16", "--parallel", "2")
    run("lucebench", "--url", url, "--areas", "all", *limits, "--out-dir", tmp_path, "--name", "lead")
    areas = [path for path in (tmp_path / "lead").glob("*.json") if path.stem != "_summary"]
    rows = [row for path in areas for row in json.loads(path.read_text())["rows"]]
    assert len(rows) == len(areas) == 9
    assert {row["http_status"] for row in rows} == {200}
    assert {row.get("error") for row in rows} <= MODEL_ERRORS
    assert all(row["completion_tokens"] for row in rows)


@pytest.fixture
def book():
    """The URL of a long text."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=ROOT / "docs")
    handler.log_message = lambda *_: None
    with HttpServer(handler) as server:
        yield f"{server.url}/compatibility.md"


@pytest.fixture
def tokenizer(smollm2, tmp_path):
    """The model's tokenizer as Hugging Face's library reads it."""
    fields = GGUFReader(smollm2).fields
    tokens, merges = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges"))
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": {token: n for n, token in enumerate(tokens)}, "merges": merges}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": model, "pre_tokenizer": byte_level, "decoder": byte_level}))
    return path


def test_llama_benchy_counts_tokens_by_their_ids(run, url, book, tokenizer, tmp_path):
    sizes = ("--pp", "64", "--tg", "16", "--depth", "32", "--runs", "1", "--concurrency", "1", "2")
    result = tmp_path / "result.json"
    said = run(
        *("llama-benchy", "--base-url", f"{url}/v1", "--model", "smollm2/instruct", *sizes, "--exact-tg"),
        *("--tokenizer", tokenizer, "--book-url", book, "--exit-on-first-fail"),
        "--skip-coherence",  # it asks so small a model for facts
        *("--save-result", result, "--format", "json"),
    )
    assert "No complete token_ids" not in said
    assert [each["tg_throughput"]["mean"] > 0 for each in json.loads(result.read_text())["benchmarks"]]


def test_llm_grill_has_no_failed_requests(run, url, tmp_path):
    (tmp_path / "scenario.yaml").write_text(GRILL.format(url=url))
    assert "✓" in run("llm-grill", "ping", "scenario.yaml")
    run("llm-grill", "run", "scenario.yaml", "--output", "results.jsonl")
    (summary,) = json.loads(run("llm-grill", "report", "results.jsonl", "--format", "json"))["summary"]
    assert (summary["success_count"], summary["error_count"]) == (4, 0)


def test_litellm_understands_all_apis(run, url):
    said = run("python", ROOT / "tests/clients/ask_with_litellm.py", url).splitlines()
    answer, streamed, calls, document, text, response, message, refused = map(json.loads, said)
    assert answer > 0
    assert streamed > 0
    assert set(calls) == {"get_weather"}
    assert (document, text, response, message > 0, refused) == (["city"], True, True, True, True)


def test_ollamas_own_client_and_langchains_understand_all_they_call(run, url):
    said = run("python", ROOT / "tests/clients/ask_with_ollama.py", url).splitlines()
    capabilities, running, answer, *flags, refused, chain, n_tokens, document = map(json.loads, said)
    assert {"completion", "tools"} <= set(capabilities)
    assert running == [True]
    assert answer == [True, True, True]
    assert flags == [True, ["city"], True, True]
    assert refused[0] == 501
    assert (chain, n_tokens > 0, document) == (True, True, True)


def test_clients_of_embedding_models_get_the_same_vectors(run, target, tmp_path):
    model = tiny_bert(tmp_path / "bert.gguf", ["hello", "fox"])
    lead, url = start_lead("--model", str(target), "--embedding-model", str(model), *LEAD)
    with lead:
        lead.wait_for("embeddings INFO: ready")
        said = run("python", ROOT / "tests/clients/embed_with_others.py", url).splitlines()
    different, sizes, n_tokens, capabilities = map(json.loads, said)
    whole = sizes[0]
    assert different == []
    assert sizes == [whole, whole, 8, whole, whole, whole, whole]
    assert n_tokens > 0
    assert capabilities == ["embedding"]


def test_llm_finds_the_model_by_its_plugin_for_ollama(run, url):
    run.environment["OLLAMA_HOST"] = url
    (name,) = [line.split()[1] for line in run("llm", "models").splitlines() if line.startswith("Ollama:")]
    assert run("llm", "-m", name, "-o", "num_predict", "40", "Hello!").strip()


@pytest.fixture
def ask_llm(run, url, tmp_path):
    (tmp_path / "extra-openai-models.yaml").write_text(LLM_MODELS.format(url=url))
    return functools.partial(run, "llm", "-o", "max_tokens", "100")


def test_llm_goes_on_with_a_conversation(ask_llm):
    assert ask_llm("-m", "chat", "--system", "Be brief.", "Hello!").strip()
    assert ask_llm("-m", "chat", "--no-stream", "--continue", "Bye!").strip()
    assert ask_llm("-m", "text", "The capital of France is").strip()


def test_llm_gets_documents(ask_llm):
    document = json.loads(
        ask_llm("-m", "chat", "-o", "temperature", "0", "--schema", "name, age int", "Invent a dog.")
    )
    assert document.keys() == {"name", "age"}
