import json
import sys

import pytest

from lab.parts.processes import start_lead
from tests.clients import scripted_lead
from tests.lead.chat_format.cases import source, template
from tests.real.client import post
from tests.real.processes import LEAD

pytestmark = pytest.mark.real

READ = {
    "type": "function",
    "function": {
        "name": "read",
        "parameters": {
            "type": "object",
            "properties": {"path": {"enum": ["a.py", "b.py"]}, "line": {"type": "integer", "maximum": 99}},
            "required": ["path", "line"],
            "additionalProperties": False,
        },
    },
}
CHAT = template("Qwen3.5-4B")
TEXT = "A call is written between <tool_call> and </tool_call>: I call the function read."
WRONG = CHAT.tool_format.write([("read", {"path": "c.py", "line": "first"})])
SAID = f"</think>\n\n{TEXT}{WRONG}"
"""The answer after reasoning, which begins in the prompt."""


@pytest.fixture(scope="module")
def lead(target, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lead")
    (folder / "template.jinja").write_text(source("Qwen3.5-4B"))
    script = [
        {"seen": [], "says": f"{WRONG}, I could write.{SAID}"},
        {"seen": ["only text"], "says": f"</think>\n\n{TEXT}"},
    ]
    (folder / "script.json").write_text(json.dumps(script))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(scripted_lead.SCRIPT, str(folder / "script.json"))
        command = (sys.executable, scripted_lead.__file__)
        options = ("--chat-template-file", str(folder / "template.jinja"), "--max-restarts", "9")
        options += ("--policy", "fixed")  # beside load the adaptive one may find that drafts gain nothing
        lead, url = start_lead("--model", str(target), *LEAD, *options, command=command)
        with lead:
            yield lead, url


def ask(url, question, **fields):
    request = {"messages": [{"role": "user", "content": question}], "tools": [READ], "max_tokens": 400}
    return post(url, request | fields).json()


def test_a_call_that_would_be_wrong_has_arguments_of_its_schema(lead):
    answer = ask(lead[1], "Read it.")
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"].strip() == TEXT
    (call,) = choice["message"]["tool_calls"]
    arguments = json.loads(call["function"]["arguments"])
    assert arguments["path"] in {"a.py", "b.py"}
    assert isinstance(arguments["line"], int)
    assert WRONG.strip() in choice["message"]["reasoning_content"]


def test_text_in_which_nothing_is_called_is_what_the_target_writes(lead):
    message = ask(lead[1], "Write only text.")["choices"][0]["message"]
    assert (message["content"], message.get("tool_calls")) == (TEXT, None)


def test_drafts_change_no_call(lead):
    plain = ask(lead[1], "Read it.", seed=7)
    drafted = ask(lead[1], "Read it.", seed=7, prediction={"type": "content", "content": SAID})
    assert drafted["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] > 0
    assert arguments_of(drafted) == arguments_of(plain)


def test_several_answers_have_calls_of_their_own(lead):
    for choice in ask(lead[1], "Read it.", n=2)["choices"]:
        (call,) = choice["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"])["path"] in {"a.py", "b.py"}


def arguments_of(answer):
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    return call["function"]["arguments"]
