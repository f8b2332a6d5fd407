import dataclasses
from array import array

import pytest

from lead.chat_format.answer_memory import Turn
from lead.chat_format.control_texts import RenderedPrompt
from lead.chat_format.deltas import AssistantMessage
from lead.chat_format.parser import OutputParser
from lead.chat_format.request import ConversationFields
from lead.chat_format.written_answers import TurnMarks, answers_in, meaning, next_turns
from lead.settings.conversation import ConversationOptions
from lead.tools.argument_types import argument_types
from tests.lead.chat_format.cases import HELLO, load, parser_config, template

PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "all": {"type": "boolean"}, "limit": {"type": "integer"}},
}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "", "parameters": PARAMETERS}}
    for name in ("read", "edit")
]
CALL = ("read", {"path": "src/a b.py", "all": True, "limit": 3})
THOUGHT = "Hm.\nIt has to be read first."
ANSWER = "It has\n\n* one\n* two"
AGAIN = {"role": "user", "content": "Again"}
ENDS = (
    *("<|im_end|>", "</s>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<turn|>", "<|tool_response>"),
    *("<\uff5cend▁of▁sentence\uff5c>", "<|end_of_text|>", "<|END_OF_TURN_TOKEN|>", "<seed:eos>"),
    *("<|user|>", "<|observation|>", "<end_of_sentence>", "[e~[", "<SPECIAL_12>", "<sep>", "<|eos|>"),
    *("</assistant>", "<|role_end|>", "<|call|>", "<\uff5chy_eos:opensource\uff5c>", "<|message_sep|>"),
)
"""The texts that end an answer in the vocabularies of these templates' models."""
PHI = ("<|end|>",)
"""Harmony ends messages with it, but not answers."""
OTHERWISE = {
    "Apertus-8B-Instruct": "no token ends an answer with calls",
    "CohereForAI-c4ai-command-r-plus-tool_use": "how to call is repeated before each answer",
    "GigaChat3-10B-A1.8B": "a call begins with the token that ends an answer",
    "Kimi-K3": "the lead does not parse its answers",
    "MiniMax-M3": "the lead has no format of its calls",
    "llama-cpp-rwkv-world": "no token ends a turn",
    "muse-glimmer": "the lead does not parse its answers",
    "tencent-Hy3": "the answer begins with an empty thought, which is gone in later turns",
}
"""Templates whose own rendering of an answer stays in later prompts, with the reason."""
ONE_BY_ONE = {
    "google-gemma-2-2b-it": "calls are text of messages",
    "meta-llama-Llama-3.1-8B-Instruct": "a message has one call",
    "meta-llama-Llama-3.3-70B-Instruct": "a message has one call",
    "upstage-Solar-Open-100B": "between two calls is what ends an answer",
}
"""Templates whose own rendering of several calls stays in later prompts, with the reason."""
BESIDE = {
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "an empty thought is written between them",
    "google-gemma-4-31B-it": "content comes after the result",
    "openai-gpt-oss-120b": "content beside calls becomes a thought",
    "upstage-Solar-Open-100B": "both are messages, with marks that models leave out",
}
"""Templates whose own rendering of content beside calls stays in later prompts, with the reason."""


def conversation(chat, messages, tools):
    body = ConversationFields(messages=messages, tools=tools or None)
    return body.conversation(ConversationOptions(), chat.tool_format)


def rendered(chat, messages, tools):
    return chat.render(conversation(chat, messages, tools))


def as_written(chat, prompt, thought, content, calls):
    """An answer as models write it, with more white space than most templates leave."""
    markers, text = chat.reasoning, ""
    is_harmony = markers is not None and bool(markers.turn)
    if thought and is_harmony:
        text = f"{markers.start}{thought}{markers.end}{markers.turn}"
    elif thought:
        text = f"{'' if markers.is_open(prompt) else markers.start}\n{thought}\n{markers.end}\n\n"
    elif markers and markers.is_open(prompt):
        text = f"{markers.end}\n\n"
    if content:
        text += (markers.content if is_harmony else "") + content
    return text + (chat.tool_format.write(calls) if calls else "")


def config(chat, prompt, tools):
    names = [each["function"]["name"] for each in tools]
    types = {name: argument_types(PARAMETERS) for name in names}
    return dataclasses.replace(parser_config(chat, prompt, names, calls=bool(tools)), types=types)


def sent_back(chat, prompt, text, tools):
    """The message that a client makes of an answer."""
    parser = OutputParser(config(chat, prompt, tools))
    answer = AssistantMessage.of([*parser.push(text), *parser.finish()])
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in answer.calls
    ]
    return {
        "role": "assistant",
        "content": answer.content,
        **({"reasoning_content": answer.reasoning} if answer.reasoning else {}),
        **({"tool_calls": calls} if calls else {}),
    }


def begun(prompt, text):
    """The first turn, with the white space at the prompt's end. Its "tokens" are characters."""
    n_space = len(prompt) - len(prompt.rstrip())
    space = array("i", map(ord, prompt[len(prompt) - n_space :]))
    turn = Turn.begin(prompt, (), space, n_space)
    return dataclasses.replace(turn, tokens=turn.tokens + array("i", map(ord, text)))


def answers(chat, later, last, tools):
    """The answers in a later prompt that are found as the model wrote them."""

    def means_same(parts):
        how = config(chat, later[: parts[0][0]], tools)
        text = "".join(later[start:end] for start, end in parts)
        return meaning(how, text) == meaning(how, "".join(map(chr, last.tokens)))

    harmony = chat.reasoning is not None and bool(chat.reasoning.turn)
    ends = ENDS if harmony else ENDS + PHI
    marks = TurnMarks(ends, chat.tool_format.starts if tools else ())
    return answers_in(RenderedPrompt(later), last, marks, means_same)[0]


def second_turn(name, thought="", content="", calls=(), change=None):
    """The answers found in the prompt of the second turn, and whether an answer should be found."""
    chat, tools = template(name), TOOLS if calls else []
    prompt = rendered(chat, [HELLO], tools)
    text = as_written(chat, prompt, thought, content, calls)
    message = sent_back(chat, prompt, text, tools)
    assert len(message.get("tool_calls", ())) == len(calls), name
    if change:
        change(message)
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "done"}
        for call in message.get("tool_calls", ())
    ]
    later = rendered(chat, [HELLO, message, *(results or [AGAIN])], tools)
    keeps = later.startswith(prompt.rstrip()) and (not thought or thought in later)
    is_same = later.startswith(prompt + text)
    return answers(chat, later, begun(prompt, text), tools), keeps and not is_same


@pytest.mark.parametrize(
    "answer",
    [
        {"content": ANSWER},
        {"content": ANSWER, "thought": THOUGHT},
        {"calls": [CALL]},
        {"content": "I look.", "calls": [CALL]},
        {"calls": [CALL], "thought": THOUGHT},
        {"calls": [CALL, ("edit", {"path": "ü"})]},
    ],
    ids=["text", "thought", "call", "text and call", "thought and call", "calls"],
)
def test_what_a_model_wrote_is_found_in_the_next_prompt_of_each_template(answer):
    """Not if a template leaves out the thought, changes the first prompt, or writes exactly the same text."""
    missing = []
    for name in load("templates.toml").keys() - OTHERWISE.keys():
        chat = template(name)
        if answer.get("thought") and chat.reasoning is None:
            continue
        is_both = answer.get("content") and answer.get("calls")
        if is_both and (name in BESIDE or not chat.tool_format.starts):
            continue
        if len(answer.get("calls", ())) > 1 and (chat.tool_format.between is None or name in ONE_BY_ONE):
            continue
        found, is_due = second_turn(name, **answer)
        if is_due and not found:
            missing.append(name)
    assert missing == [], missing


def edit_text(message):
    message["content"] += "!"


def edit_call(message):
    arguments = message["tool_calls"][0]["function"]["arguments"]
    message["tool_calls"][0]["function"]["arguments"] = arguments.replace("a b", "a c")


def send_no_thought(message):
    del message["reasoning_content"]


@pytest.mark.parametrize("name", ["GLM-4.6", "Qwen3.5-4B", "deepseek-ai-DeepSeek-V3.2"])
@pytest.mark.parametrize(
    ("change", "answer"),
    [
        (edit_text, {"content": ANSWER}),
        (edit_text, {"content": ANSWER, "thought": THOUGHT, "calls": [CALL]}),
        (edit_call, {"thought": THOUGHT, "calls": [CALL]}),
        (send_no_thought, {"thought": THOUGHT, "calls": [CALL]}),
    ],
)
def test_an_answer_that_the_client_changed_is_read_as_the_client_sent_it(name, change, answer):
    assert second_turn(name, **answer, change=change)[0] == ()


def three_turns(change=lambda _: None):
    """The answers found in the third prompt. `change` changes its messages."""
    chat, messages, last = template("GLM-4.6"), [HELLO], None
    found = ()
    for thought in ("One.", "Two."):
        prompt = rendered(chat, messages, TOOLS)
        found = answers(chat, prompt, last, TOOLS)
        text = as_written(chat, prompt, thought, "", [CALL])
        last = dataclasses.replace(begun(prompt, text), answers=found)
        message = sent_back(chat, prompt, text, TOOLS)
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "done"}
        messages = [*messages, message, result]
    change(messages)
    return answers(chat, rendered(chat, messages, TOOLS), last, TOOLS)


def test_all_answers_of_a_conversation_are_found():
    assert ["".join(map(chr, each.tokens)).count("\n<tool_call>") for each in three_turns()] == [1, 1]


def test_answers_after_a_changed_message_are_read_as_the_template_writes_them():
    def change(messages):
        messages[2]["content"] = "not done"

    assert len(three_turns(change)) == 1


def test_thoughts_that_the_template_drops_after_a_question_are_not_put_back():
    assert three_turns(lambda messages: messages.append(AGAIN)) == ()


def test_the_next_turns_show_where_a_thought_is_left_out():
    chat = template("Qwen-Qwen3-0.6B")
    given = conversation(chat, [HELLO], TOOLS)
    texts = [
        chat.render(dataclasses.replace(given, messages=each)) for each in next_turns(given, reasons=True)
    ]
    assert ["<think>\n@" in each.rpartition("Hello")[2] for each in texts] == [False, True, False]
