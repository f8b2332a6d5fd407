import pytest

from lead.chat_format.answer_probes import derive_answer_format
from lead.chat_format.output_format import ReasoningMarkers
from lead.chat_format.request_parts import ChatMessage, TemplateInput
from tests.lead.chat_format.cases import HELLO, load, template

THINK = ReasoningMarkers("<think>\n", "\n</think>\n\n")
NOT_SHOWN = {"Apertus-8B-Instruct", "ibm-granite-granite-3.3-2B-Instruct", "openai-gpt-oss-120b"}


def writer(answer=lambda _, content: content, begin="", off="", before="<assistant>"):
    """A template. `answer` writes reasoning and content. `begin` ends prompts, or `off` without reasoning."""

    def render(messages, _tools=(), *, opened=False, enable_thinking=True, **_):
        turns = (
            before + answer(message.get("reasoning_content", ""), str(message["content"]))
            if message["role"] == "assistant"
            else f"<user>{message['content']}"
            for message in messages
        )
        return "".join(turns) + f"{before}{begin if enable_thinking else off}" * opened

    return render


def derived(*arguments, **options):
    return derive_answer_format(writer(*arguments, **options), "")


def test_a_template_without_reasoning_has_none():
    answers = derived()
    assert (answers.reasoning, answers.ignored, answers.unfinished) == (None, (), "")


def test_a_template_that_refuses_everything_has_none():
    assert derive_answer_format(lambda *_, **__: None, "").reasoning is None


def test_the_texts_around_reasoning_are_those_that_the_template_writes():
    answers = derived(lambda reasoning, content: f"<why>{reasoning}</why>\n{content}")
    assert answers.reasoning == ReasoningMarkers("<why>", "</why>\n")


@pytest.mark.parametrize(
    ("begin", "off"),
    [("<think>\n", ""), ("<think>\n", "<think>\n\n</think>\n\n"), ("", "<think>\n\n</think>")],
)
def test_reasoning_that_only_prompts_begin_or_leave_empty_is_found(begin, off):
    assert derived(begin=begin, off=off).reasoning == THINK


def test_reasoning_that_is_taken_out_of_earlier_answers_is_found():
    answers = derived(lambda _, content: content.split("</think>")[-1])
    assert answers.reasoning == ReasoningMarkers("<think>", "</think>")


def test_markers_of_content_are_ignored():
    answers = derived(
        lambda reasoning, content: f"<why>{reasoning}</why>" * bool(reasoning) + f"<say>{content}</say>"
    )
    assert answers.reasoning == ReasoningMarkers("<why>", "</why>", content="<say>")
    assert answers.ignored == ("<say>", "</say>")


def test_messages_of_one_answer_begin_like_the_answer():
    def write(reasoning, content):
        thought = f"<why>{reasoning}<end><start>assistant" if reasoning else ""
        return f"{thought}<say>{content}<end>"

    answers = derived(write, before="<start>assistant")
    assert answers.reasoning == ReasoningMarkers(
        "<why>", "<end>", turn="<start>assistant", content="<say>", interleaved=True
    )


def test_a_marker_that_prompts_begin_is_part_of_the_answer():
    answers = derived(lambda _, content: f"all\n{content}", before="<assistant>\n\n>>>")
    assert (answers.unfinished, answers.ignored) == (">>>", (">>>all\n",))


def test_no_more_than_three_templates_do_not_show_how_their_models_answer():
    answers = {name: template(name).answers for name in load("templates.toml")}
    assert len(NOT_SHOWN) == 3
    said = {name for name, each in answers.items() if each != derive_again(name)}
    assert said == NOT_SHOWN


def derive_again(name):
    chat = template(name)
    return derive_answer_format(chat._renderer(chat._plain, chat.capabilities), "")


@pytest.mark.parametrize(
    "name",
    [
        *("upstage-Solar-Open-100B", "mistralai-Ministral-3-14B-Reasoning-2512", "openai-gpt-oss-120b"),
        *("Qwen3.5-4B", "LFM2.5-8B-A1B"),
    ],
)
def test_reasoning_is_given_to_the_template_in_the_field_that_it_reads(name):
    call = {"id": "call00001", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    answer = ChatMessage(role="assistant", content="", reasoning_content="thought", tool_calls=[call])
    result = ChatMessage(role="tool", content="2", tool_call_id=call["id"], name="add")
    chat = template(name)
    assert f"{chat.reasoning.opening}thought" in chat.render(
        TemplateInput([ChatMessage(**HELLO), answer, result])
    )
