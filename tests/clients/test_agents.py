"""Agents of other projects do a task, started as docs/recipes.md says. The lead's target is scripted."""

import itertools
import json
import re
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab.parts.processes import Program, start_lead
from lead.chat_format.request_parts import ChatMessage, TemplateInput
from lead.settings.conversation import ConversationOptions
from tests.clients.agents import AGENTS, ANSWER, has_passed
from tests.clients.scripted_lead import SCRIPT, STEP_SECONDS
from tests.lead.chat_format.cases import source, template, tool
from tests.tiny_models import TinyModel, write_tiny_model

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]
KEY, BACK_KEY = "sesame", "barley"
TINY_BACK = Path(__file__).parents[2] / "docs/examples/tiny_back.py"
"""Drafts the tokens that followed the last tokens earlier: no draft model knows so many templates."""
THOUGHT = "I take one step at a time."
TEMPLATES = (
    *("Qwen3.5-4B", "Qwen3-Coder", "openai-gpt-oss-120b", "GLM-4.6", "MiniMax-M2"),
    *("deepseek-ai-DeepSeek-V3.2", "google-gemma-4-31B-it", "Mistral-Small-3.2-24B-Instruct-2506"),
    "LFM2.5-8B-A1B",
)
USUAL_TEMPLATES = ("Qwen3.5-4B", "openai-gpt-oss-120b", "deepseek-ai-DeepSeek-V3.2")
USUAL_PROGRAMS = ("claude", "codex", "opencode")


def written(chat, history, text, calls):
    """A model's output with this template after `history`: reasoning, text and calls."""
    tools = [tool(name) for name, _ in calls] or [tool("none")]
    messages = [ChatMessage(**each) for each in history]
    prompt = chat.render(TemplateInput(messages, tools, variables=ConversationOptions().variables))
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
    """A random model, small enough to read the 35,000 tokens with which an agent begins."""
    heads = {"attention.head_count": 1, "attention.head_count_kv": 1, "rope.dimension_count": 32}
    tiny = TinyModel("llama", width=32, n_layers=1, settings={"context_length": 1 << 17, **heads})
    return write_tiny_model(tiny, tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def lead(request, model, tmp_path_factory):
    """A lead with a template, its URL, and a function that prepares answers. All drafts are the back's."""
    name, with_back = request.param
    folder = tmp_path_factory.mktemp("lead")
    given = {"chat-template-file": source(name), "api-key-file": KEY, "back-key-file": BACK_KEY}
    files = [argument for option in given for argument in (f"--{option}", folder / option)]
    for option, text in given.items():
        (folder / option).write_text(text)
    script_file = folder / "script.json"
    size = ("--ctx-size", "131072", "--parallel", "2", "--threads", "1", "--no-calibrate")
    options = ("--model", str(model), "--alias", "big", *map(str, files), *size)
    command = (sys.executable, str(Path(__file__).with_name("scripted_lead.py")))
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv(SCRIPT, str(script_file))
        if with_back:
            patch.setenv(STEP_SECONDS, "0.02")
            patch.setenv("BACK_KEY", BACK_KEY)
            options = (*options, "--no-ngram", "--suffix-memory", "0")
        lead, url = start_lead(*options, command=command)
        stack.enter_context(lead)
        if with_back:
            stack.enter_context(Program("tiny_back", command=(sys.executable, str(TINY_BACK), url)))
            lead.wait_for(r"back tiny .*joined")

        def prepare(agent, work):
            script_file.write_text(json.dumps(script(agent, template(name), work)))

        yield lead, url, prepare


def cases():
    """Three programs with three templates. The other cases, and all cases with a back, run only by name."""
    for name, with_back, program in itertools.product(TEMPLATES, (False, True), AGENTS):
        is_usual = not with_back and name in USUAL_TEMPLATES and program in USUAL_PROGRAMS
        is_missing = not AGENTS[program].is_installed
        marks = (
            pytest.mark.clients if is_usual else pytest.mark.agents,
            pytest.mark.skipif(is_missing, reason=f"{program} is not installed: make clients"),
        )
        title = f"{program}-{name}{'-back' if with_back else ''}"
        yield pytest.param((name, with_back), AGENTS[program], marks=marks, id=title)


@pytest.mark.parametrize(("lead", "agent"), list(cases()), indirect=["lead"])
def test_an_agent_does_its_task(lead, agent, tmp_path):
    """The file is right, its test passes, and the status is 0. Drafts are accepted; no request is refused."""
    served, url, prepare = lead
    since = served.n_lines()
    prepare(agent, tmp_path / "work")
    done = agent.run(tmp_path, url, KEY, seconds=240)
    log = "\n".join(served.lines(since))
    said = f"{done.stdout}\n{done.stderr}\n{log}"
    assert done.returncode == 0, said
    assert has_passed(tmp_path / "work"), said
    assert ANSWER in done.stdout, said
    assert not re.search(r" [45]\d\d in \d+ ms", log), said
    assert re.search(r"accepted [1-9]", log), said
