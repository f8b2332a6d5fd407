import pytest

from lead.chat_format.output_format import ReasoningMarkers

THINK = ReasoningMarkers("<think>\n", "\n</think>\n\n")
HARMONY = ReasoningMarkers(
    "<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant", "<|channel|>final<|message|>"
)
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
