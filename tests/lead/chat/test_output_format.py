# ruff: noqa: RUF001 - DeepSeek writes its marks with full-width bars
import pytest

from lead.chat import output_format
from lead.chat.output_format import detect_ignored_markers, detect_reasoning, detect_tool_format


@pytest.mark.parametrize(
    ("marks", "found"),
    [("<｜tool▁calls▁begin｜>", output_format.DEEPSEEK), ("<function= <parameter=", output_format.GENERIC)],
)
def test_formats_that_no_template_of_the_corpus_has_are_detected(marks, found):
    assert detect_tool_format(marks, takes_tools=True) is found


def test_a_template_that_cannot_describe_tools_is_generic():
    assert detect_tool_format("<tool_call>", takes_tools=False) is output_format.GENERIC


def test_a_template_without_markers_has_no_reasoning():
    assert detect_reasoning("<|im_start|>") is None
    assert detect_ignored_markers("<|im_start|>") == ()


def test_the_parser_sees_every_control_token_of_a_call_header():
    assert "[CALL_ID]" in output_format.MISTRAL_NAMED.markers()


THINK, HARMONY = detect_reasoning("<think>"), detect_reasoning("<|channel|>")
PROMPT = "<|start|>assistant"


@pytest.mark.parametrize(
    ("prompt", "reasoning", "content", "added"),
    [
        ("", "", "Yes", "Yes"),
        ("", "Hm", "", "<think>\nHm"),
        ("", "Hm", "Yes", "<think>\nHm\n</think>\n\nYes"),
        ("<think>\n", "", "Yes", "\n</think>\n\nYes"),
        ("<think>\n", "Hm", "", "Hm"),
    ],
)
def test_an_answer_so_far_is_written_as_most_models_write_it(prompt, reasoning, content, added):
    assert THINK.resume(prompt, reasoning, content) == added


@pytest.mark.parametrize(
    ("reasoning", "content", "added"),
    [
        ("", "Yes", "<|channel|>final<|message|>Yes"),
        ("Hm", "", "<|channel|>analysis<|message|>Hm"),
        (
            *("Hm", "Yes"),
            "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>Yes",
        ),
    ],
)
def test_an_answer_so_far_of_gpt_oss_is_written_in_channels(reasoning, content, added):
    assert HARMONY.resume(PROMPT, reasoning, content) == added
