"""Drafts are tried on texts as the model knows them."""

from lead.planning.sample_texts import sample_texts
from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import builtin_target


def test_a_chat_model_is_asked_in_its_template():
    texts = sample_texts(Vocabulary.load(builtin_target()))
    assert all(text.startswith("<|im_start|>user\n") for text in texts)
    assert all(text.endswith("<|im_start|>assistant\n") for text in texts)


def test_another_model_goes_on_with_texts(tiny_model):
    texts = sample_texts(Vocabulary.load(tiny_model("llama")))
    assert not any("<|" in text for text in texts)
    assert len(texts) == len(set(texts)) > 2


def test_a_template_that_refuses_a_question_is_not_used(tiny_model):
    vocabulary = Vocabulary.load(tiny_model("llama"))
    refusing = "{{ raise_exception('no') }}"
    assert sample_texts(vocabulary, refusing) == sample_texts(vocabulary)
