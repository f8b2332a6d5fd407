# ruff: noqa: RUF001 - DeepSeek writes its marks with full-width bars
import pytest

from lead.chat import family
from lead.chat.family import find_drops, find_family
from lead.chat.reasoning import find_thinking


@pytest.mark.parametrize(
    ("marks", "found"),
    [
        ("<tool_call>", family.HERMES),
        ("<|start_header_id|> ipython", family.LLAMA),
        ("[TOOL_CALLS]", family.MISTRAL),
        ("[TOOL_CALLS] [ARGS]", family.MISTRAL_NAMED),
        ("<｜tool▁calls▁begin｜>", family.DEEPSEEK),
        ("<｜tool▁calls▁begin｜> ```json", family.DEEPSEEK_FENCED),
        ("<|START_ACTION|>", family.COMMAND_R),
        ("<function=", family.FUNCTION_TAG),
        ("<function= <parameter=", family.GENERIC),
        ("<|channel|>", family.GPT_OSS),
        ("<|im_start|>", family.GENERIC),
    ],
)
def test_families_are_known_by_their_marks(marks, found):
    assert find_family(marks, takes_tools=True) is found


def test_a_template_that_tells_of_no_tools_is_generic():
    assert find_family("<tool_call>", takes_tools=False) is family.GENERIC


@pytest.mark.parametrize(
    ("template", "start"),
    [("<think>", "<think>"), ("[THINK]", "[THINK]"), ("<|channel|>", "<|channel|>analysis<|message|>")],
)
def test_reasoning_is_known_by_its_marks(template, start):
    assert find_thinking(template).start == start


def test_models_that_do_not_reason_have_no_marks():
    assert find_thinking("<|im_start|>") is None
    assert find_drops("<|im_start|>") == ()
