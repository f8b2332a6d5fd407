"""Agents that other people wrote do a task as docs/recipes.md says: a real lead, whose target writes what is prepared."""

import json
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.processes import start_lead
from bench.tiny_models import TinyModel, write_tiny_model
from lead.chat.request_parts import ChatMessage, TemplateInput
from tests.clients.agents import AGENTS, ANSWER, has_passed
from tests.clients.scripted_lead import SCRIPT
from tests.lead.chat.cases import source, template, tool

pytestmark = [pytest.mark.real, pytest.mark.clients, pytest.mark.timeout(900)]
KEY = "sesame"
THOUGHT = "I take one step at a time."
TEMPLATES = (
    *("Qwen3.5-4B", "Qwen3-Coder", "openai-gpt-oss-120b", "GLM-4.6", "MiniMax-M2"),
    *("deepseek-ai-DeepSeek-V3.2", "google-gemma-4-31B-it", "Mistral-Small-3.2-24B-Instruct-2506"),
    "LFM2.5-8B-A1B",
)


def written(chat, history, text, calls):
    """What a model with this template writes after `history`: reasoning, text and calls."""
    tools = [tool(name) for name, _ in calls] or [tool("none")]
    prompt = chat.render(TemplateInput([ChatMessage(**each) for each in history], tools))
    called = chat.tool_format.write(calls) if calls else ""
    markers = chat.reasoning
    if markers is None or prompt.rstrip().endswith(markers.end):  # the template has it answer at once
        return text + called
    if markers.content:  # Harmony: each part of an answer is a message
        said = markers.content + text if text and not called else called
        return markers.start + THOUGHT + markers.end + markers.turn + said
    return markers.resume(prompt, THOUGHT, text + called)


def script(agent, chat, work):
    """The turns of an agent as the target writes them."""
    history = [{"role": "user", "content": "Make the tests pass."}]
    found = []
    for turn in agent.turns:
        calls = turn.calls_in(work)
        found.append({"seen": list(turn.seen), "says": written(chat, history, turn.text, calls)})
        for name, arguments in calls:
            call = {"id": "call00000", "function": {"name": name, "arguments": arguments}}
            history.append({"role": "assistant", "content": turn.text, "tool_calls": [call]})
            history.append({"role": "tool", "content": "Done.", "tool_call_id": "call00000"})
    return found


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Random, and small enough to read the 35,000 tokens with which an agent begins."""
    heads = {"attention.head_count": 1, "attention.head_count_kv": 1, "rope.dimension_count": 32}
    tiny = TinyModel("llama", width=32, n_layers=1, settings={"context_length": 1 << 17, **heads})
    return write_tiny_model(tiny, tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture
def scripted_lead(model, tmp_path, monkeypatch):
    """Starts a lead with a template, whose target says what a script has: its log and its URL."""
    with ExitStack() as stack:

        def start(name, answers):
            (tmp_path / "script.json").write_text(json.dumps(answers))
            (tmp_path / "template.jinja").write_text(source(name))
            (tmp_path / "keys").write_text(KEY)
            monkeypatch.setenv(SCRIPT, str(tmp_path / "script.json"))
            files = ("--chat-template-file", tmp_path / "template.jinja", "--api-key-file", tmp_path / "keys")
            size = ("--ctx-size", "131072", "--parallel", "2", "--threads", "1", "--no-calibrate")
            command = (sys.executable, str(Path(__file__).with_name("scripted_lead.py")))
            options = ("--model", str(model), "--alias", "big", *map(str, files), *size)
            lead, url = start_lead(*options, command=command)
            stack.enter_context(lead)
            return lead, url

        yield start


def check_task(agent, name, scripted_lead, place):
    """The agent does the task with a template: the file is right, the test passes, exit status 0."""
    lead, url = scripted_lead(name, script(agent, template(name), place / "work"))
    done = agent.run(place, url, KEY, seconds=240)
    said = f"{done.stdout}\n{done.stderr}\n{lead.log}"
    assert done.returncode == 0, said
    assert has_passed(place / "work"), said
    assert " 400 in" not in lead.log, said
    return done


@pytest.mark.parametrize("name", TEMPLATES[:3])
@pytest.mark.parametrize("program", AGENTS)
def test_an_agent_does_its_task(program, name, scripted_lead, tmp_path):
    agent = AGENTS[program]
    if not agent.is_installed:
        pytest.skip(f"{program} is not installed: make clients")
    (tmp_path / "place").mkdir()
    done = check_task(agent, name, scripted_lead, tmp_path / "place")
    assert ANSWER in done.stdout
