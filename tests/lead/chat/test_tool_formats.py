# ruff: noqa: RUF001 - DeepSeek writes its marks with full-width bars
import pytest

from lead.chat import tool_formats
from lead.chat.reasoning import detect_reasoning
from lead.chat.tool_formats import detect_ignored_markers, detect_tool_format


@pytest.mark.parametrize(
    ("marks", "found"),
    [
        ("<tool_call>", tool_formats.HERMES),
        ("<|start_header_id|> ipython", tool_formats.LLAMA),
        ("[TOOL_CALLS]", tool_formats.MISTRAL),
        ("[TOOL_CALLS] [ARGS]", tool_formats.MISTRAL_NAMED),
        ("<｜tool▁calls▁begin｜>", tool_formats.DEEPSEEK),
        ("<｜tool▁calls▁begin｜> ```json", tool_formats.DEEPSEEK_FENCED),
        ("<|START_ACTION|>", tool_formats.COMMAND_R),
        ("<function=", tool_formats.FUNCTION_TAG),
        ("<function= <parameter=", tool_formats.GENERIC),
        ("<|channel|>", tool_formats.GPT_OSS),
        ("<|im_start|>", tool_formats.GENERIC),
    ],
)
def test_formats_are_detected_by_texts_in_the_template(marks, found):
    assert detect_tool_format(marks, takes_tools=True) is found


def test_a_template_that_cannot_describe_tools_is_generic():
    assert detect_tool_format("<tool_call>", takes_tools=False) is tool_formats.GENERIC


@pytest.mark.parametrize(
    ("template", "start"),
    [("<think>", "<think>"), ("[THINK]", "[THINK]"), ("<|channel|>", "<|channel|>analysis<|message|>")],
)
def test_reasoning_is_detected_by_its_markers(template, start):
    assert detect_reasoning(template).start == start


def test_a_template_without_markers_has_no_reasoning():
    assert detect_reasoning("<|im_start|>") is None
    assert detect_ignored_markers("<|im_start|>") == ()


def test_the_parser_sees_every_control_token_of_a_call_header():
    assert "[CALL_ID]" in tool_formats.MISTRAL_NAMED.markers()
