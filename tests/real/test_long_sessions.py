"""An agent's session of 16,000 tokens. Each turn reads only new tokens, in every kind of memory."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from lab.parts.processes import start_lead
from tests.clients import scripted_lead
from tests.lead.chat_format.cases import source
from tests.tiny_models import TinyModel, write_tiny_model

pytestmark = pytest.mark.real

SCRIPTED_LEAD = (sys.executable, "-P", str(Path(scripted_lead.__file__)))
FILE = "".join(f"{n}: a line of the file, which says that {n * 7919} is a number.\n" for n in range(590))
"""A text of about 14,000 tokens."""
MEMORIES = {
    "plain": "llama",
    "windows": "gemma3",
    "recurrent with rollback": "qwen35",
    "recurrent": "qwen3next",
}
READ = {
    "type": "function",
    "function": {
        "name": "read",
        "description": "Read a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}
N_CALLS = 9
N_SESSION = 16_000
"""The least number of tokens at the session's end."""
MAX = 64
"""The most tokens that are read again, besides new tokens."""


def thought(n):
    return f"I look at part {n} of it, since that has not been read yet. " * 6


def script():
    """The target's outputs: N_CALLS calls, each after a thought, and an answer."""
    calls = [
        {
            "seen": [f"Result {n - 1}." if n else "Begin."],
            "says": f"{thought(n)}\n</think>\n\n<tool_call>\n<function=read>\n<parameter=path>\npart {n}\n"
            "</parameter>\n</function>\n\n</tool_call>",
        }
        for n in range(N_CALLS)
    ]
    answer = {"seen": [f"Result {N_CALLS - 1}."], "says": "That was all.\n</think>\n\n" + "It is long. " * 40}
    more = {"seen": ["Once more."], "says": "No.\n</think>\n\n" + "It is long. " * 40}
    return [*calls, answer, more, {"seen": ["Go on."], "says": "No.\n</think>\n\nIt is."}]


@dataclass
class Agent:
    """Sends back the messages that it got, with the thoughts. n_prompt, n_read: tokens of the last prompt."""

    url: str
    n_prompt: int = 0
    n_read: int = 0

    def __post_init__(self):
        question = {"role": "user", "content": f"{FILE}\nBegin."}
        self.messages = [{"role": "system", "content": "Read files. " * 80}, question]

    def ask(self, *more, **fields):
        """The answer to `more` messages."""
        self.messages += more
        body = {"messages": self.messages, "tools": [READ], "max_tokens": 400, **fields}
        answer = httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=240).json()
        usage = answer["usage"]
        self.n_prompt = usage["prompt_tokens"]
        self.n_read = self.n_prompt - usage["prompt_tokens_details"]["cached_tokens"]
        return answer["choices"][0]["message"]

    def n_tokens(self, text):
        return len(httpx.post(f"{self.url}/tokenize", json={"content": text}).json()["tokens"])


def result(message, n):
    (call,) = message["tool_calls"]
    return {"role": "tool", "tool_call_id": call["id"], "content": f"Result {n}. " + "It has nothing. " * 10}


@pytest.mark.parametrize(
    "memory",
    [pytest.param(each, marks=[] if each == "recurrent" else [pytest.mark.models]) for each in MEMORIES],
)
def test_each_turn_of_a_session_reads_what_is_new(memory, tmp_path, monkeypatch):
    path = tmp_path / "script.json"
    path.write_text(json.dumps(script()))
    monkeypatch.setenv(scripted_lead.SCRIPT, str(path))
    model = TinyModel(MEMORIES[memory], n_layers=2, settings={"context_length": 40_000})
    write_tiny_model(model, tmp_path / "model.gguf")
    (tmp_path / "template.jinja").write_text(source("Qwen3.5-4B"))
    arguments = ("--model", tmp_path / "model.gguf", "--chat-template-file", tmp_path / "template.jinja")
    more = ("--ctx-size", "40000", "--parallel", "2", "--threads", "1", "--no-calibrate")
    lead, url = start_lead(*map(str, arguments), *more, command=SCRIPTED_LEAD)
    with lead:
        beyond = read_beyond_what_is_new(Agent(url))
    assert {what: n for what, n in beyond.items() if n > MAX} == {}, beyond


def read_beyond_what_is_new(agent):
    """The number of tokens that each turn has read again.

    After a question this template leaves out all thoughts since the previous question: the rest is new.
    """
    beyond = {}
    message, n_question = agent.ask(), agent.n_prompt
    for n in range(N_CALLS):
        returned = result(message, n)
        message = agent.ask(message, returned)
        beyond[f"result {n}"] = agent.n_read - agent.n_tokens(returned["content"])
    message = agent.ask(max_tokens=60)
    beyond["regenerated"] = agent.n_read
    cut = agent.ask(message, {"role": "user", "content": "Once more."}, max_tokens=60)
    beyond["thoughts dropped"] = agent.n_read - (agent.n_prompt - n_question)
    n_question = agent.n_prompt
    agent.ask(cut, {"role": "user", "content": "Go on."})
    assert agent.n_prompt > N_SESSION
    beyond["cut"] = agent.n_read - (agent.n_prompt - n_question)
    return beyond
