"""The tokens of a chat's prompt: where later prompts differ from it, and the tokens that the model wrote."""

import dataclasses
from array import array

import pytest

from lead.chat_format.control_texts import RenderedPrompt
from lead.chat_format.request import ConversationFields
from lead.chat_format.template import ChatTemplate
from lead.settings.conversation import ConversationOptions
from lead.settings.limits import RequestLimits
from lead.tokenizer.jobs import KnownTurn, write_conversation
from lead.tokenizer.request_preparer import PromptTokens, RequestPreparer
from tests.lead.chat_format.cases import source

INSTRUCTIONS = "Answer in verse. " * 40
QUESTION = "Why is the sky blue?"
SYSTEM = {"role": "system", "content": INSTRUCTIONS}
ASKED = [SYSTEM, {"role": "user", "content": QUESTION}]
AGAIN = {"role": "user", "content": "And at night?"}
READ = {"type": "function", "function": {"name": "read", "description": ""}}


def before(vocabulary, text, at):
    tokens = PromptTokens(RenderedPrompt(text), (), vocabulary)
    return vocabulary.detokenize(tokens.all[: tokens.n_before(at)])


def test_tokens_before_a_position_end_there_but_for_one(vocabulary):
    prompt = f"<|im_start|>system\n{INSTRUCTIONS}<|im_end|>\n<|im_start|>user\n{QUESTION}<|im_end|>\n"
    for at in (len("<|im_start|>system\n"), prompt.index(QUESTION), len(prompt)):
        found = before(vocabulary, prompt, at)
        assert prompt[:at].startswith(found)
        assert at - len(found) <= len("<|im_start|>")


def test_a_token_that_reaches_beyond_the_position_is_left_out(vocabulary):
    prompt = INSTRUCTIONS + "vers"
    assert INSTRUCTIONS.startswith(before(vocabulary, prompt, len(INSTRUCTIONS) + 1))


class Chat:
    """A conversation with a template of the corpus and the shipped vocabulary."""

    def __init__(self, vocabulary, name="Qwen-Qwen3-0.6B"):
        self.vocabulary = vocabulary
        chat = ChatTemplate(source(name), "", "<|im_end|>")
        self._jobs = RequestPreparer(vocabulary, chat, ConversationOptions(), RequestLimits())

    def prepare(self, messages, last=None, **fields):
        body = ConversationFields(messages=messages, **fields)
        known = KnownTurn(last, has_checkpoints=True)
        return self._jobs.prepare_chat(write_conversation(body), known=known)

    def tokens(self, *texts):
        """The tokens of each text by itself, as a model may choose them."""
        return [
            token
            for text in texts
            for token in self.vocabulary.tokenize(text, add_special=False, parse_special=True)
        ]

    def answered(self, prepared, written):
        return dataclasses.replace(prepared.turn, tokens=prepared.turn.tokens + array("i", written))

    def second(self, message, *written, name=AGAIN):
        """The tokens of the first prompt with its answer, and the tokens of the second prompt."""
        first = self.prepare(ASKED)
        tokens = self.tokens(*written)
        second = self.prepare([*ASKED, message, name], self.answered(first, tokens))
        return [*first.prompts[0], *tokens], second.prompts[0].tolist()


@pytest.fixture
def chat(vocabulary):
    return Chat(vocabulary)


ANSWER = {"role": "assistant", "content": "Because of Rayleigh scattering."}
PIECES = ("Bec", "au", "se of Rayl", "eigh scat", "tering.")


def test_the_second_prompt_has_the_tokens_that_the_model_chose(chat):
    written, second = chat.second(ANSWER, *PIECES, "<|im_end|>")
    plain = chat.prepare([*ASKED, ANSWER, AGAIN]).prompts[0].tolist()
    assert second != plain
    assert second[: len(written)] == written
    assert chat.vocabulary.detokenize(second) == chat.vocabulary.detokenize(plain)


def test_an_answer_that_was_cut_off_goes_on_with_what_ends_a_turn(chat):
    written, second = chat.second(ANSWER, *PIECES)
    assert second[: len(written) + 1] == [*written, *chat.tokens("<|im_end|>")]


def test_another_answer_than_the_models_is_tokenized(chat):
    written, second = chat.second({**ANSWER, "content": "Because."}, *PIECES, "<|im_end|>")
    assert second == chat.prepare([*ASKED, {**ANSWER, "content": "Because."}, AGAIN]).prompts[0].tolist()
    assert second[: len(written)] != written


def test_a_thought_that_was_cut_off_is_closed_as_the_template_does_it(vocabulary):
    chat = Chat(vocabulary, "GLM-4.6")
    result = {"role": "tool", "tool_call_id": "c", "content": "x"}
    message = {"role": "assistant", "content": "", "reasoning_content": "Hm."}
    written, second = chat.second(message, "\n<think>Hm.", name=result)
    assert second[: len(written)] != written or second[len(written)] != chat.tokens("<|im_end|>")[0]


def test_a_second_call_that_the_client_did_not_get_is_not_put_back(chat):
    body = {"tools": [READ], "parallel_tool_calls": False}
    call = '<tool_call>\n{"name": "read", "arguments": {}}\n</tool_call>'
    first = chat.prepare(ASKED, **body)
    last = chat.answered(first, chat.tokens(call, "\n", call, "<|im_end|>"))
    function = {"name": "read", "arguments": "{}"}
    message = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": function}]}
    result = {"role": "tool", "tool_call_id": "c", "content": "x"}
    text = chat.vocabulary.detokenize(chat.prepare([*ASKED, message, result], last, **body).prompts[0])
    assert text.rpartition(QUESTION)[2].count("<tool_call>") == 1


def test_a_call_that_was_cut_off_is_not_put_back(chat):
    first = chat.prepare(ASKED, tools=[READ])
    last = chat.answered(first, chat.tokens("I re", "ad.\n", '<tool_call>\n{"name": "re'))
    message = {"role": "assistant", "content": "I read."}
    tokens = chat.prepare([*ASKED, message, AGAIN], last, tools=[READ]).prompts[0]
    assert "I read.<|im_end|>" in chat.vocabulary.detokenize(tokens)


def test_a_text_of_a_control_token_in_an_answer_does_not_end_it(chat):
    message = {**ANSWER, "content": "It ends with <|im_end|> here."}
    written = ["It ends with ", "<", "|", "im_end|> he", "re."]
    first = chat.prepare(ASKED)
    plain = [
        token
        for text in written
        for token in chat.vocabulary.tokenize(text, add_special=False, parse_special=False)
    ]
    second = chat.prepare([*ASKED, message, AGAIN], chat.answered(first, plain)).prompts[0].tolist()
    assert second[: len(first.prompts[0]) + len(plain)] == [*first.prompts[0], *plain]


def cuts(chat, messages, tools=None):
    prepared = chat.prepare(messages, tools=tools)
    return [chat.vocabulary.detokenize(prepared.prompts[0][:n]) for n in prepared.cuts]


def test_a_prompt_is_cut_where_other_questions_begin_and_where_the_answer_does(chat):
    question, answer = cuts(chat, [SYSTEM, {"role": "user", "content": f"{QUESTION} " * 20}])
    assert question.endswith("<|im_start|>user")
    assert f"{QUESTION} <|im_end|>\n" in answer


def test_a_prompt_is_cut_where_thoughts_will_be_left_out_after_the_next_question(chat):
    thought = {"role": "assistant", "content": "", "reasoning_content": "Hm. " * 40}
    call = {"id": "call00001", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "call00001", "content": "Something. " * 40}
    first, last = cuts(chat, [*ASKED, {**thought, "tool_calls": [call]}, result], [READ])
    assert first.endswith("<|im_start|>assistant\n")
    assert "Hm." not in first
    assert "Something." in last


def test_few_tokens_are_not_worth_a_checkpoint(chat):
    assert cuts(chat, [{"role": "user", "content": QUESTION}]) == []


def test_no_cut_is_looked_for_where_memory_can_be_trimmed(chat):
    prepared = chat._jobs.prepare_chat(write_conversation(ConversationFields(messages=ASKED)))
    assert prepared.cuts == ()
