"""A reranker reads a question and a text in the form that it was trained with."""

from gguf import GGUFReader, GGUFWriter

from lead.embeddings.embedding_requests import RankedPair
from shared.llama.vocabulary import Vocabulary
from tests.tiny_models import copy_fields, write_and_close


def test_the_tokens_around_the_texts_are_the_models(ranker):
    vocabulary = Vocabulary.load(ranker, writes_text=False)
    found = RankedPair("fox", "hello [SEP]").tokens(vocabulary)
    shown = [vocabulary.piece(token, special=True).strip() for token in found]
    assert shown[:4] == [b"[CLS]", b"fox", b"[SEP]", b"hello"]
    assert b"[SEP]" not in shown[4:]  # a text cannot end itself


def test_a_template_of_the_model_is_filled_once(ranker, tmp_path):
    reader, writer = GGUFReader(ranker), GGUFWriter(tmp_path / "with.gguf", "bert")
    copy_fields(reader, writer, lambda name: not name.startswith(("GGUF.", "general.architecture")))
    writer.add_string("tokenizer.chat_template.rerank", "hello {query} world {document}")
    write_and_close(writer)
    vocabulary = Vocabulary.load(tmp_path / "with.gguf", writes_text=False)
    found = RankedPair("{document}", "fox").tokens(vocabulary)
    assert found == vocabulary.encode("hello {document} world fox", add_special=False, parse_special=True)
