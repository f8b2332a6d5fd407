import itertools

import pytest

from lead.chat_format.deltas import AssistantMessage
from lead.chat_format.fitting import Lost, applied, fitting_steps
from lead.chat_format.parser import OutputParser
from lead.chat_format.request_parts import ChatMessage, TemplateInput
from lead.tools.call_steps import steps
from lead.tools.known_formats import GENERIC
from shared.errors import RequestError
from tests.lead.chat_format.cases import load, parser_config, template

STEPS = steps(GENERIC)
TEMPLATES = [*load("templates.toml")]


def say(role, content="", **fields):
    return {"role": role, "content": content, **fields}


def call(call_id="call_abc123def456", name="read_file", arguments='{"path": "a.py"}'):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content, call_id="call_abc123def456"):
    return say("tool", content, tool_call_id=call_id)


def user(text):
    return say("user", text)


def called(*calls, content="", **more):
    return say("assistant", content, tool_calls=[*calls], **more)


ONE, TWO, THREE = (say("assistant", text) for text in ("one", "two", "three"))
CONVERSATIONS = {
    "two kinds of instructions": [say("system", "one"), say("developer", "two"), user("three")],
    "instructions of the developer alone": [say("developer", "one"), user("two")],
    "later instructions": [user("one"), TWO, say("system", "three"), user("four")],
    "content and reasoning beside a call": [
        *(user("one"), called(call(), content="two", reasoning_content="hm"), result("three")),
    ],
    "two calls": [
        *(user("one"), called(call("call_1"), call("call_2", "other"))),
        *(result("two", "call_1"), result("three", "call_2")),
    ],
    "a call that was cut off": [user("one"), called(call(arguments='{"pa')), result("x")],
    "a call with a list": [user("one"), called(call(arguments="[1, 2]")), result("x")],
    "the user twice": [user("one"), user("two"), THREE, user("four")],
    "an answer first": [ONE, user("two")],
    "two answers": [user("one"), TWO, THREE, user("four")],
    "a result without a call": [user("one"), result("two"), user("three")],
    "empty messages": [say("system"), say("user"), say("assistant"), user("one")],
    "another role": [say("critic", "one"), user("two")],
}
PARAMETERS = {"type": "object", "properties": {"path": {"type": ["array", "null"]}}}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "", "parameters": PARAMETERS}}
    for name in ("read_file", "other")
]


@pytest.mark.parametrize("given", CONVERSATIONS)
def test_no_text_of_a_conversation_is_lost_with_any_template(given):
    for name in TEMPLATES:
        chat = template(name)
        messages = [ChatMessage(**message) for message in CONVERSATIONS[given]]
        for tools in ([], TOOLS):
            listed = [] if chat.tool_format.is_described else tools
            prompt = chat.render(TemplateInput(messages, listed))
            assert [each for message in messages for each in message.parts if each not in prompt] == [], name


TWICE = [call("abcdefgh1", arguments='{"path": "a b.py", "n": [1, {"x": null}]}'), call("abcdefgh2")]


def own_answer(chat, prompt):
    """A thought, content and two calls, as the template writes them."""
    tools = [] if chat.tool_format.is_described else TOOLS
    messages = [
        ChatMessage(**say("user", "asked")),
        ChatMessage(**say("assistant", "I look.", tool_calls=TWICE)),
    ]
    text = chat.render(TemplateInput(messages, tools, open_answer=False)).rpartition("asked")[2]
    starts = [at for start in ("I look.", *chat.tool_format.starts, "{") if (at := text.find(start)) >= 0]
    text, reasoning = text[min(starts) :], chat.reasoning
    if reasoning is None:
        return text
    opening = "" if reasoning.is_open(prompt) else reasoning.opening
    return f"{opening}Hm.{reasoning.closing}{reasoning.turn}{reasoning.content}{text}"


def sent_back(answer):
    """The messages that a client makes of an answer."""
    calls = [call(each.id, each.name, each.arguments) for each in answer.calls]
    thought = {"reasoning_content": answer.reasoning} if answer.reasoning else {}
    message = say("assistant", answer.content, tool_calls=calls or None, **thought)
    return [message, *(result("found", each["id"]) for each in calls), say("user", "Go on.")]


@pytest.mark.parametrize("name", TEMPLATES)
def test_an_answer_of_the_lead_can_be_sent_back_wherever_it_was_cut(name):
    chat = template(name)
    prompt = chat.render(TemplateInput([ChatMessage(**say("user", "asked"))], TOOLS))
    text, config = own_answer(chat, prompt), parser_config(chat, prompt, {"read_file", "other"})
    for end in range(0, len(text) + 1, max(9, len(text) // 60)):  # one repeats pages of instructions
        parser = OutputParser(config)
        answer = AssistantMessage.of([*parser.push(text[:end]), *parser.finish(is_cut=end < len(text))])
        messages = [ChatMessage(**each) for each in (say("user", "asked"), *sent_back(answer))]
        listed = [] if chat.tool_format.is_described else TOOLS
        assert answer.content.strip() in chat.render(TemplateInput(messages, listed)), text[:end]


def writes(*roles):
    """A template that writes messages of these roles, and refuses two messages of the same role in a row."""

    def render(messages):
        if any(one["role"] == other["role"] for one, other in itertools.pairwise(messages)):
            return None
        return "".join(each["content"] for each in messages if each["role"] in roles)

    return render


def test_messages_that_a_template_takes_stay_as_they_are():
    assert fitting_steps([say("user", "one")], STEPS, writes("user")) == []


def test_no_more_steps_are_taken_than_are_needed():
    messages = [say("user", "one"), say("user", "two")]
    steps = fitting_steps(messages, STEPS, writes("user"))
    assert len(steps) == 1
    assert applied(steps, messages) == [say("user", "one\n\ntwo")]


def test_a_message_that_every_form_leaves_out_is_named():
    with pytest.raises(Lost) as lost:
        fitting_steps([say("user", "one"), say("assistant", "two")], STEPS, writes("user"))
    assert lost.value.index == 1


def test_the_client_is_told_which_text_would_be_lost():
    source = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    chat = type(template("Qwen3-Coder"))(source, "", "")
    with pytest.raises(RequestError, match=r"messages\.1: .* omits this text"):
        chat.render(TemplateInput([ChatMessage(**say("user", "a")), ChatMessage(**say("assistant", "b"))]))
