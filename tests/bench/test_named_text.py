from bench.named_text import NamedText

N_TOKENS, N_VOCAB = 400, 1000
TEXT = NamedText(N_TOKENS, 1, N_VOCAB)


def test_the_tokens_of_a_text_are_of_the_vocabulary():
    assert all(0 <= token < N_VOCAB for token in TEXT.tokens)
    assert len(set(TEXT.tokens)) > N_TOKENS / 2


def test_texts_differ():
    assert TEXT.tokens[:8] != NamedText(N_TOKENS, 2, N_VOCAB).tokens[:8]
