"""Where the last message of a conversation begins in the tokens of its prompt."""

import pytest

from lead.tokenizer.preparation import tokens_before
from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import builtin_target

INSTRUCTIONS = "Answer in verse. " * 40
QUESTION = "Why is the sky blue?"


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary.load(builtin_target())


def before(vocabulary, prompt, content):
    tokens = vocabulary.tokenize(prompt, add_special=True, parse_special=True)
    n = tokens_before(content, prompt, tokens, vocabulary)
    return vocabulary.detokenize(tokens[:n])


def test_the_tokens_before_a_question_are_those_of_the_instructions(vocabulary):
    prompt = f"<|im_start|>system\n{INSTRUCTIONS}<|im_end|>\n<|im_start|>user\n{QUESTION}<|im_end|>\n"
    assert prompt.startswith(before(vocabulary, prompt, QUESTION))
    assert before(vocabulary, prompt, QUESTION).endswith("<|im_start|>user\n")


def test_the_last_of_several_equal_messages_counts(vocabulary):
    assert before(vocabulary, f"{QUESTION}\n{INSTRUCTIONS}\n{QUESTION}", QUESTION).count(QUESTION) == 1


def test_a_token_that_reaches_into_the_message_is_left_out(vocabulary):
    prompt = INSTRUCTIONS + "vers"
    assert INSTRUCTIONS.startswith(before(vocabulary, prompt, "ers"))


@pytest.mark.parametrize("content", ["", "not there", "Answer"])
def test_a_message_that_is_not_found_or_begins_the_prompt_has_none_before_it(vocabulary, content):
    assert before(vocabulary, "Answer in verse.", content) == ""


def test_few_tokens_are_not_worth_a_checkpoint(vocabulary):
    assert before(vocabulary, f"short {QUESTION}", QUESTION) == ""
