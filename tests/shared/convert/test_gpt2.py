"""GPT-2 folders give the logits and the tokens of GPT-2's definition."""

import json
import re

import numpy as np
import pytest

from shared.convert.converted_file import read_conversion
from shared.convert.gpt2 import byte_alphabet, read_vocabulary
from shared.errors import ModelLoadError
from tests.shared.convert import gpt2_reference as gpt2
from tests.shared.convert.conftest import converted, logits, small_gpt2
from tests.shared.convert.gpt2_reference import ALPHABET, vocabulary

SHAPES = {
    "GPT-2's head width": {"width": 192, "n_heads": 3, "n_layers": 3},
    "odd width": {"width": 60, "n_heads": 5, "n_layers": 2},
    "own width of the feed-forward part": {"width": 64, "n_heads": 4, "n_layers": 1, "n_hidden": 96},
}
TOKENS = list(range(0, 280, 9))


@pytest.mark.parametrize("prefix", ["", "transformer."])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_folder_gives_the_logits_of_the_definition(tmp_path, shape, prefix):
    config, weights = small_gpt2(**shape)
    model = converted(gpt2.write_folder(tmp_path / "gpt2", config, weights, prefix=prefix))
    assert np.abs(logits(model, TOKENS) - gpt2.logits(config, weights, TOKENS)).max() < 2e-3


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_shards_and_types_are_read(tmp_path, kind):
    config, weights = small_gpt2()
    folder = gpt2.write_folder(tmp_path / "gpt2", config, weights, kind, prefix="transformer.", n_shards=3)
    assert (
        np.abs(logits(converted(folder, "f32"), TOKENS) - gpt2.logits(config, weights, TOKENS)).max() < 2e-3
    )


@pytest.mark.parametrize(("kind", "stored"), [("F32", "F32"), ("F16", "F16"), ("BF16", "F32")])
def test_matrices_are_stored_as_in_the_source(tmp_path, kind, stored):
    folder = gpt2.write_folder(tmp_path / "gpt2", *small_gpt2(), kind)
    stored_as = {
        each.weights.name: each.encoder.ggml_type.name for each in read_conversion(folder).file().tensors
    }
    assert stored_as["blk.0.attn_qkv.weight"] == stored
    assert stored_as["position_embd.weight"] == "F32"


def test_an_own_classifier_is_used_if_it_is_not_tied(tmp_path):
    config, weights = small_gpt2()
    other = np.roll(weights["wte.weight"], 3, axis=0)
    folder = gpt2.write_folder(
        tmp_path / "gpt2", config | {"tie_word_embeddings": False}, weights | {"lm_head.weight": other}
    )
    expected = gpt2.logits(config, weights | {"lm_head.weight": other}, TOKENS)
    assert np.abs(logits(converted(folder), TOKENS) - expected).max() < 2e-3


def test_a_tied_classifier_in_the_file_is_ignored(tmp_path):
    config, weights = small_gpt2()
    tensors = weights | {"lm_head.weight": weights["wte.weight"], "h.0.attn.bias": np.ones((1, 1, 64, 64))}
    folder = gpt2.write_folder(tmp_path / "gpt2", config, tensors)
    assert "output.weight" not in {each.name for each in read_conversion(folder).weights}


CHANGES = {
    "another kind": {"model_type": "gpt_neox"},
    "another activation": {"activation_function": "relu"},
    "other scales": {"scale_attn_by_inverse_layer_idx": True},
    "heads that do not divide": {"n_head": 7},
    "more layers than there are": {"n_layer": 3},
    "too many layers": {"n_layer": 10**9},
    "more tokens than there are": {"vocab_size": 10**6},
    "another width": {"n_embd": 120},
    "a width that is no number": {"n_embd": "60"},
    "no width": {"n_embd": 0},
    "a number that is too large": {"n_positions": 10**30},
    "another context": {"n_positions": 2**20},
    "an end token that is not there": {"eos_token_id": 10**6},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_config_that_does_not_fit_is_refused(gpt2_folder, change):
    path = gpt2_folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelLoadError):
        read_conversion(gpt2_folder)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "\0", '{"model_type": 3}'])
def test_a_config_that_is_none_is_refused(gpt2_folder, text):
    (gpt2_folder / "config.json").write_text(text)
    with pytest.raises(ModelLoadError):
        read_conversion(gpt2_folder)


def test_the_refusal_of_another_kind_says_what_to_do(gpt2_folder):
    (gpt2_folder / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ModelLoadError, match=r"of the type 'llama', but only gpt2 .* in GGUF format"):
        read_conversion(gpt2_folder)


@pytest.mark.parametrize("name", ["model.safetensors", "vocab.json", "merges.txt"])
def test_a_missing_file_is_named(gpt2_folder, name):
    (gpt2_folder / name).unlink()
    with pytest.raises(ModelLoadError, match=name):
        read_conversion(gpt2_folder)


def test_a_missing_tensor_is_named(tmp_path):
    config, weights = small_gpt2()
    del weights["h.1.mlp.c_fc.bias"]
    folder = gpt2.write_folder(tmp_path / "gpt2", config, weights)
    with pytest.raises(ModelLoadError, match=r"lacks the tensor h\.1\.mlp\.c_fc\.bias"):
        read_conversion(folder)


N = len(vocabulary()[0])
SPLIT = {
    "Once upon a time,": b"Once/ upon/ a/ time/,",
    "a": b"a",
    "  a b\n\n": b" / a/ /b/\n/\n",
    "the then": b"t/he/ the/n",
    "théâtre 12 3.5 x_y": b"t/h/\xc3\xa9/\xc3/\xa2/t/re/ /1/2/ /3/./5/ /x/_/y",
    "世界 😀": b"\xe4/\xb8/\x96/\xe7/\x95/\x8c/ /\xf0/\x9f/\x98/\x80",
    "it's we'll": b"i/t/'s/ /w/e/'/ll",
    "\t<|endoftext|>": b"\t/</|/e/nd/o/f/t/e/x/t/|/>",
}


@pytest.mark.parametrize("text", SPLIT)
def test_a_text_is_split_as_gpt2_does_it(gpt2_folder, text):
    found = converted(gpt2_folder).vocabulary
    tokens = found.tokenize(text, add_special=True, parse_special=False)
    assert b"/".join(map(found.piece, tokens)) == SPLIT[text]


def test_the_end_token_is_the_last_before_the_unused_ones(gpt2_folder):
    found = converted(gpt2_folder).vocabulary
    assert found.end_tokens == {N - 1}
    assert found.n_tokens == N + 5


def test_bytes_have_openai_s_characters():
    assert byte_alphabet() == [ALPHABET[byte] for byte in range(256)]


VOCABULARIES = {
    "no object": "[1]",
    "no JSON": "{",
    "a number that is none": '{"a": "0"}',
    "a gap": json.dumps({**vocabulary()[0], "zz": N + 3}),
    "an id twice": json.dumps({**vocabulary()[0], "zz": 3}),
    "an empty token": json.dumps({**vocabulary()[0], "": N}),
    "no bytes": json.dumps({"a": 0, "<|endoftext|>": 1}),
    "no end": json.dumps({token: i for token, i in vocabulary()[0].items() if i < N - 1}),
    "more than the model has": json.dumps({**vocabulary()[0], **{f"x{i}": N + i for i in range(9)}}),
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(pytest.param("vocab.json", text, id=kind) for kind, text in VOCABULARIES.items()),
        *(("merges.txt", text) for text in ("", "#version: 0.2\n", "a", "a b c", "a z", "h e\nh e")),
        *(("merges.txt", text) for text in (" h", "\x00")),
    ],
)
def test_files_that_make_no_tokens_are_refused(gpt2_folder, name, text):
    (gpt2_folder / name).write_text(text)
    with pytest.raises(ModelLoadError, match=re.escape(name)):
        read_vocabulary(gpt2_folder, N + 5, None)


def test_merges_in_another_encoding_are_refused(gpt2_folder):
    (gpt2_folder / "merges.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelLoadError, match="UTF-8"):
        read_vocabulary(gpt2_folder, N + 5, None)
