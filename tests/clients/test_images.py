"""Clients of other projects show pictures to a real lead, each in its own API."""

import base64
import importlib
import json
import subprocess
from pathlib import Path

import pytest

from lab.parts.processes import start_lead
from shared.llama.native import FOLDER
from tests.clients.test_programs import BIN
from tests.image_files import png
from tests.real.processes import LEAD

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not any(FOLDER.glob("*mtmd*")), reason="no libmtmd (make images)"),
]
PICTURE = png(60, 40)
DATA = base64.b64encode(PICTURE).decode()
URL = f"data:image/png;base64,{DATA}"
N_ROWS = 16
QUESTION = "What is this?"
SOURCE = {"type": "base64", "media_type": "image/png", "data": DATA}
SCREENSHOT = [
    {"role": "user", "content": "Look at shot.png"},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "shot.png"}}],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "t1",
                "content": [{"type": "image", "source": SOURCE}],
                "cache_control": {"type": "ephemeral"},
            }
        ],
    },
]
"""Messages in which Claude Code's tool Read returns a picture."""
READ = {
    "name": "Read",
    "description": "Reads a file.",
    "input_schema": {"type": "object", "properties": {"file_path": {"type": "string"}}},
}


@pytest.fixture(scope="module")
def url(tiny_sight):
    model, projector = map(str, tiny_sight("gemma3"))
    lead, url = start_lead("--model", model, "--mmproj", projector, "--ctx-size", "4096", *LEAD)
    with lead:
        yield url


@pytest.fixture(scope="module")
def openai(url):
    package = importlib.import_module("openai")
    with package.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def anthropic(url):
    package = importlib.import_module("anthropic")
    with package.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def test_openai_shows_one_in_a_chat(openai):
    def n_prompt(content):
        messages = [{"role": "user", "content": content}]
        answer = openai.chat.completions.create(model="any", messages=messages, max_tokens=8)
        return answer.usage.prompt_tokens

    text = {"type": "text", "text": QUESTION}
    shown = n_prompt([{"type": "image_url", "image_url": {"url": URL}}, text])
    assert shown >= n_prompt([text]) + N_ROWS


def test_openai_shows_one_to_responses(openai):
    content = [
        {"type": "input_image", "image_url": URL, "detail": "auto"},
        {"type": "input_text", "text": "?"},
    ]
    asked = [{"role": "user", "content": content}]
    answer = openai.responses.create(model="any", input=asked, max_output_tokens=8)
    assert answer.usage.input_tokens > N_ROWS


def test_anthropic_counts_and_reads_one(anthropic):
    content = [{"type": "image", "source": SOURCE}, {"type": "text", "text": QUESTION}]
    asked = {"model": "any", "messages": [{"role": "user", "content": content}]}
    counted = anthropic.messages.count_tokens(**asked).input_tokens
    message = anthropic.messages.create(**asked, max_tokens=8)
    usage = message.usage
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == counted > N_ROWS


def test_a_screenshot_that_a_tool_returns_is_seen(anthropic):
    asked = {"model": "any", "tools": [READ], "system": [{"type": "text", "text": "Be brief."}]}
    with anthropic.messages.stream(**asked, messages=SCREENSHOT, max_tokens=8) as stream:
        usage = stream.get_final_message().usage
    counted = anthropic.messages.count_tokens(**asked, messages=SCREENSHOT).input_tokens
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == counted
    assert counted > anthropic.messages.count_tokens(**asked, messages=SCREENSHOT[:1]).input_tokens + N_ROWS


@pytest.mark.clients
@pytest.mark.skipif(not (BIN / "python").is_file(), reason="the clients are not installed: make clients")
def test_ollama_shows_one(url, tmp_path):
    (tmp_path / "shot.png").write_bytes(PICTURE)
    script = Path(__file__).with_name("show_with_ollama.py")
    done = subprocess.run(
        [BIN / "python", script, url, tmp_path / "shot.png"], capture_output=True, text=True, check=True
    )
    capabilities, chat, generate = map(json.loads, done.stdout.splitlines())
    assert "vision" in capabilities
    assert min(chat, generate) > N_ROWS
