import codecs
import itertools
import json

from lead.chat_format.deltas import AssistantMessage
from lead.chat_format.output_format import ParserConfig, ReasoningMarkers
from lead.chat_format.parser import OutputParser
from lead.chat_format.request_parts import ChatMessage, TemplateInput
from tests.lead.chat_format.cases import CASES, HELLO, load, template, tool

TEMPLATES = load("templates.toml")
CALL = {"id": "call00001", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
CALLS = [("add", {"a": 1, "b": "x y", "c": [True]}), ("stop", {})]
NAMED = {f"{case.template}-{i}": case for i, case in enumerate(CASES)}


def parse(config, pieces):
    parser, deltas = OutputParser(config), []
    for piece in pieces:
        deltas += parser.push(piece)
    return AssistantMessage.of([*deltas, *parser.finish()])


def outcome(message, case):
    calls = [(call.name, json.loads(call.arguments)) for call in message.calls]
    return message.content, message.reasoning, calls, case.ids and [call.id for call in message.calls]


def failures(wrong_pieces, cases=NAMED):
    """The findings of `wrong_pieces`, by the names of the cases that have some."""
    return {name: found for name, case in cases.items() if (found := list(wrong_pieces(case)))}


def test_format_reasoning_and_capabilities_of_each_template_are_detected():
    for name, expected in TEMPLATES.items():
        chat = template(name)
        capabilities = [
            each
            for each in chat.capabilities.__slots__
            if getattr(chat.capabilities, each) and each != "no_tools_is_none"
        ]
        assert chat.tool_format.write(CALLS) == expected["calls"], name
        reasoning = ReasoningMarkers(**expected["reasoning"]) if expected["reasoning"] else None
        assert (chat.reasoning, chat.answers.ignored) == (reasoning, tuple(expected.get("ignored", ()))), name
        assert sorted(capabilities) == sorted(expected["capabilities"]), name


def test_each_familys_output_is_parsed_wherever_it_is_split():
    def wrong(case):
        config, text = case.config(), case.text()
        splits = ([text[:i], text[i:]] for i in range(len(text)))
        return [pieces for pieces in (text, *splits) if outcome(parse(config, pieces), case) != case.expected]

    assert failures(wrong) == {}


def test_the_result_does_not_depend_on_where_the_bytes_are_split():
    def wrong(case):
        config, data = case.config(), case.text().encode()
        for i in range(1, len(data)):
            decoder = codecs.getincrementaldecoder("utf-8")()
            pieces = [decoder.decode(data[:i]), decoder.decode(data[i:])]
            if outcome(parse(config, pieces), case) != case.expected:
                yield data[:i]

    others = {name: case for name, case in NAMED.items() if not case.output.isascii()}
    assert failures(wrong, others) == {}


def test_an_output_that_is_cut_off_anywhere_keeps_what_is_certain():
    def wrong(case):
        config, text = case.config(), case.text()
        names = [call.name for call in parse(config, [text]).calls]
        for i in range(len(text)):
            cut = [call.name for call in parse(config, [text[:i]]).calls]
            if cut != names[: len(cut)]:
                yield text[:i]

    assert failures(wrong) == {}


def test_an_answer_without_markers_is_content_with_every_template():
    for name in TEMPLATES:
        chat = template(name)
        prompt = chat.render(TemplateInput([ChatMessage(**HELLO)]))
        opened = chat.reasoning is not None and chat.reasoning.is_open(prompt)
        config = ParserConfig(
            reasoning=chat.reasoning, in_reasoning=opened, ignored_markers=chat.answers.ignored
        )
        message = parse(config, f"Hm.{chat.reasoning.end}Yes, no." if opened else "Yes, no.")
        assert (message.reasoning, message.content) == ("Hm." if opened else "", "Yes, no."), name


def test_a_call_as_the_template_itself_writes_it_is_parsed():
    for name in TEMPLATES:
        chat = template(name)
        if chat.tool_format.is_generic:
            continue
        user, call = ChatMessage(**HELLO), ChatMessage(role="assistant", content="", tool_calls=[CALL])
        result = ChatMessage(role="tool", content="2", tool_call_id=CALL["id"], name="add")
        rendered = chat.render(TemplateInput([user, call, result], [tool("add")], open_answer=False))
        config = ParserConfig(chat.reasoning, tool_format=chat.tool_format, tools=frozenset({"add"}))
        answers = rendered[rendered.rindex(HELLO["content"]) :]
        starts = (*chat.tool_format.starts, "{")
        message = parse(config, [answers[min(at for start in starts if (at := answers.find(start)) >= 0) :]])
        calls = [(each.name, json.loads(each.arguments)) for each in message.calls[:1]]
        assert calls == [("add", {"a": 1})], name


def test_an_answer_begun_with_its_own_reasoning_has_no_other_in_any_template():
    wrong = []
    for name in TEMPLATES:
        chat = template(name)
        if chat.reasoning is None:
            continue
        begun = f"{chat.reasoning.start}\nHm."
        for thinks, own in itertools.product(
            (True, False), (begun, f"{begun}\n{chat.reasoning.end}\n\nIt is")
        ):
            messages = [ChatMessage(**HELLO), ChatMessage(role="assistant", content=own)]
            given = TemplateInput(messages, variables={"enable_thinking": thinks}, continues=True)
            answer = chat.render(given).rpartition(HELLO["content"])[2]
            goes_on = given.continues_reasoning(chat.reasoning)
            if (
                answer.count(chat.reasoning.start) != 1
                or not answer.endswith(own)
                or goes_on != (own == begun)
            ):
                wrong.append((name, thinks, own))
    assert wrong == []
