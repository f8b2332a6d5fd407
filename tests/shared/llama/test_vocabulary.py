import pytest
from gguf import GGUFWriter, TokenType

from shared.errors import ModelLoadError
from shared.llama.vocabulary import Vocabulary
from shared.model_files.builtin import builtin_draft, builtin_target
from tests.shared.model_files.gguf_copies import without_tensors
from tests.tiny_models import TinyModel, write_and_close, write_metadata


@pytest.mark.parametrize("text", ["Hello, fox!", "  two  spaces\n\n", "Grüße 👋 日本", "", "\x00 nul"])
def test_text_comes_back_from_its_tokens(vocabulary, text):
    tokens = vocabulary.tokenize(text, add_special=False, parse_special=False)
    assert vocabulary.detokenize(tokens) == text


def test_an_end_token_is_silent_in_an_answer_and_visible_when_asked(vocabulary):
    assert vocabulary.eos in vocabulary.end_tokens
    assert vocabulary.piece(vocabulary.eos) == b""
    assert vocabulary.piece(vocabulary.eos, special=True) == b"<|im_end|>"


@pytest.mark.parametrize("token", [-1, 4096, 1 << 40])
def test_ids_out_of_range_never_reach_native_code(vocabulary, token):
    with pytest.raises(ValueError, match="not in the vocabulary"):
        vocabulary.piece(token)


def test_the_file_says_what_it_is_without_its_weights(vocabulary):
    info = vocabulary.info
    assert (info.architecture, info.n_vocab, info.n_ctx_train, info.n_embd) == ("llama", 4096, 2048, 256)
    assert info.n_params == 5_770_496
    assert "<|im_start|>" in info.chat_template


def test_the_shipped_pair_has_one_vocabulary(vocabulary):
    draft = Vocabulary.load(builtin_draft()).identify()
    assert draft.fingerprint == vocabulary.identify().fingerprint
    assert draft.model != vocabulary.identify().model


@pytest.mark.parametrize(
    "data", [b"GGUF" + b"\x07" * 100, builtin_target().read_bytes()[:50_000]], ids=["junk", "truncated"]
)
def test_a_file_that_is_no_whole_model_is_a_sentence(tmp_path, data):
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelLoadError, match="cannot be loaded"):
        Vocabulary.load(path)


CANNOT = {
    "encoder-decoder": (TinyModel("t5"), "an encoder-decoder model"),
    "diffusion": (TinyModel("llada"), "a diffusion model"),
    "not causal": (TinyModel("llama", settings={"attention.causal": False}), "an encoder"),
    "embedding": (TinyModel("qwen3", settings={"pooling_type": 3}), "an encoder"),
    "reranker": (TinyModel("qwen3", settings={"pooling_type": 4}), "an encoder"),
    "prediction of further tokens alone": (
        TinyModel("qwen35", settings={"nextn_predict_layers": 4}),
        "a drafter that reads hidden states",
    ),
}


@pytest.mark.parametrize(("model", "reason"), CANNOT.values(), ids=CANNOT)
def test_a_model_that_cannot_continue_a_text_is_refused(tmp_path, model, reason):
    path = write_metadata(model, tmp_path / "model.gguf")
    with pytest.raises(ModelLoadError, match=f"cannot be used: it is {reason}"):
        Vocabulary.load(path)


def test_layers_after_the_last_one_are_refused_alone_and_not_with_the_others(tiny_with_heads, tmp_path):
    whole = tiny_with_heads("qwen35")
    assert Vocabulary.load(whole).n_tokens == 4096
    alone = without_tensors(whole, tmp_path / "mtp.gguf", lambda name: name[:6] != "blk.4.")
    with pytest.raises(ModelLoadError, match="cannot be used: it is a drafter that reads hidden states"):
        Vocabulary.load(alone)


def write_vocabulary(path, model, tokens=()):
    """Write a GGUF file without tensors. tokens: text -> type."""
    writer = GGUFWriter(path, "llama")
    for key in ("context_length", "embedding_length", "block_count", "feed_forward_length", "vocab_size"):
        writer.add_uint32(f"llama.{key}", 8)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model(model)
    if tokens:
        writer.add_token_list(list(tokens))
        writer.add_token_types(list(tokens.values()))
        writer.add_token_scores([0.0] * len(tokens))
        writer.add_bos_token_id(1)
    write_and_close(writer)
    return path


def test_a_model_without_a_vocabulary_is_refused(tmp_path):
    with pytest.raises(ModelLoadError, match="it has no vocabulary"):
        Vocabulary.load(write_vocabulary(tmp_path / "model.gguf", "no_vocab"))


@pytest.mark.parametrize("n_bytes", [255, 256])
def test_sentencepiece_needs_a_token_for_each_byte_to_read_any_text(tmp_path, n_bytes):
    tokens = {"<unk>": TokenType.UNKNOWN, "<s>": TokenType.CONTROL, "</s>": TokenType.CONTROL}
    tokens |= {f"<0x{byte:02X}>": TokenType.BYTE for byte in range(n_bytes)} | {"x": TokenType.NORMAL}
    vocabulary = Vocabulary.load(write_vocabulary(tmp_path / "model.gguf", "llama", tokens))
    assert vocabulary.reads_any_text == (n_bytes == 256)


def test_other_tokenizers_read_any_text(vocabulary):
    assert vocabulary.reads_any_text


def test_all_pieces_are_those_of_each_token_however_long(tmp_path):
    tokens = {"<unk>": TokenType.UNKNOWN, "<s>": TokenType.CONTROL, "</s>": TokenType.CONTROL}
    tokens |= {"x": TokenType.NORMAL, "y" * 100: TokenType.USER_DEFINED, "z": TokenType.NORMAL}
    vocabulary = Vocabulary.load(write_vocabulary(tmp_path / "model.gguf", "llama", tokens))
    assert vocabulary.all_pieces() == [vocabulary.piece(token, special=True) for token in range(6)]
    assert b"y" * 100 in vocabulary.all_pieces()


def test_a_token_that_ends_answers_is_among_all_of_these(vocabulary):
    ends = {token for token in range(vocabulary.n_tokens) if vocabulary.is_end(token)}
    assert ends == vocabulary.end_tokens


RAW = {"add_special": False, "parse_special": False}
WITH_BOS = {"<unk>": TokenType.UNKNOWN, "<s>": TokenType.CONTROL, "</s>": TokenType.CONTROL}
WITH_BOS |= {f"<0x{byte:02X}>": TokenType.BYTE for byte in range(256)}


@pytest.mark.parametrize("text", ["Hi", "<s>Hi", "<s><s>Hi"])
def test_a_text_begins_with_one_bos_even_if_it_has_some(tmp_path, text):
    vocabulary = Vocabulary.load(write_vocabulary(tmp_path / "model.gguf", "llama", WITH_BOS))
    bos, *others = vocabulary.tokenize(text, add_special=True, parse_special=True)
    assert (bos, vocabulary.bos in others) == (vocabulary.bos, False)


def test_what_is_no_beginning_keeps_each_bos(tmp_path):
    vocabulary = Vocabulary.load(write_vocabulary(tmp_path / "model.gguf", "llama", WITH_BOS))
    tokens = vocabulary.tokenize("<s><s>", add_special=False, parse_special=True)
    assert tokens == [vocabulary.bos] * 2
    assert vocabulary.tokenize("x<s>", add_special=True, parse_special=True).count(vocabulary.bos) == 2


def test_text_that_only_reads_like_bos_is_kept(tmp_path):
    vocabulary = Vocabulary.load(write_vocabulary(tmp_path / "model.gguf", "llama", WITH_BOS))
    tokens = vocabulary.encode("<s>Hi", add_special=True, parse_special=True, breaks=[1])
    assert vocabulary.detokenize(tokens[1:].tolist()).endswith("<s>Hi")


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_prompt_in_parts_has_given_tokens_and_otherwise_its_own(tmp_path, vocabulary, kind):
    if kind == "llama":
        vocabulary = Vocabulary.load(write_vocabulary(tmp_path / "model.gguf", "llama", WITH_BOS))
    text = "Hi<|im_start|> there <|im_start|>you"
    (plain, _), given = vocabulary.encode_parts(text, ()), vocabulary.encode("xx", **RAW)
    assert plain == vocabulary.encode(text, add_special=True, parse_special=True)
    first, inner, last, _ = vocabulary.encode_parts(text, [(2, 21, given)], [3])
    assert first == vocabulary.encode("Hi", add_special=True, parse_special=True)
    assert inner == given
    assert last == vocabulary.encode("<|im_start|>you", add_special=False, parse_special=True)


def test_where_no_control_token_may_be_is_known_in_each_part(vocabulary):
    text = "<|im_start|>a<|im_end|>b<|im_start|>"
    *_, last, _ = vocabulary.encode_parts(text, [(12, 13, vocabulary.encode("a", **RAW))], [1, 14, 25])
    assert vocabulary.detokenize(last) == "<|im_end|>b<|im_start|>"
    assert not {vocabulary.special_tokens[each] for each in ("<|im_start|>", "<|im_end|>")} & set(last)
