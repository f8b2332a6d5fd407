from shared.llama.tensor_names import tensor_names
from shared.models.builtin import builtin_draft


def test_the_names_are_in_the_order_of_the_file():
    names = tensor_names(builtin_draft())
    assert names[0] == "token_embd.weight"
    assert "blk.0.attn_q.weight" in names


def test_a_file_that_is_no_gguf_has_none(tmp_path):
    path = tmp_path / "junk.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    assert tensor_names(path) == []
