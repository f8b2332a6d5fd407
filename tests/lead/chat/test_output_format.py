import pytest

from lead.chat.output_format import detect_ignored_markers, detect_reasoning


def test_a_template_without_markers_has_no_reasoning():
    assert detect_reasoning("<|im_start|>") is None
    assert detect_ignored_markers("<|im_start|>") == ()


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
