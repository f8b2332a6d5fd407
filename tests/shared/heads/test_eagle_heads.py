"""Tiny random EAGLE-3 drafters on real (tiny, random) targets: their input, drafts and refusals."""

import gguf
import numpy as np
import pytest

from shared.errors import ModelLoadError
from shared.heads.eagle_heads import open_eagle, why_no_target
from shared.heads.mtp_span import MtpSpan
from shared.llama.span import Span
from tests.shared.heads.conftest import rows, rows_in_company
from tests.shared.llama.conftest import OF_THREE, TEXT
from tests.tiny_eagle import write_tiny_eagle

ARCHITECTURES = ["llama", "qwen3", "qwen35", "lfm2", "gpt-oss"]


@pytest.fixture
def target(opened, tiny_model):
    """Opens a tiny target."""
    return lambda architecture="llama": opened(tiny_model(architecture), OF_THREE)


def draft(states, heads, slot, n):
    """A plain loop over TEXT: the whole text with the target's rows, then one token after the other."""
    (output,) = heads.decode([MtpSpan(slot, 1, TEXT[1:], list(rows(states, slot, len(TEXT) - 1)))])
    drafted, logits = [], []
    for i in range(n):
        logits.append(output.logits.copy())
        drafted.append(int(output.logits.argmax()))
        (output,) = heads.decode([MtpSpan(slot, len(TEXT) + i, drafted[-1:], [output.state.copy()])])
    heads.trim(slot, 0)
    return drafted, logits


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_rows_are_the_inputs_of_the_layers_in_whatever_company_a_text_is_decoded(
    target, tmp_path, architecture
):
    model = target(architecture)
    heads, states = open_eagle(model, write_tiny_eagle(tmp_path / "eagle.gguf"))
    heads.close()
    assert rows_in_company(model, states).shape == (len(TEXT), 3 * 64)


def test_the_input_of_the_first_layer_is_the_embedding(target, tiny_model, tmp_path):
    model = target()
    heads, states = open_eagle(model, write_tiny_eagle(tmp_path / "eagle.gguf", layers=(0, 1, 2)))
    heads.close()
    model.decode([Span(0, 0, TEXT, 1)])
    tensors = {each.name: each.data for each in gguf.GGUFReader(tiny_model("llama")).tensors}
    assert rows(states, 0, len(TEXT))[:, :64] == pytest.approx(tensors["token_embd.weight"][TEXT], abs=1e-5)


@pytest.mark.parametrize(
    "more", [{}, {"own": True}, {"own": True, "width": 32}, {"own": True, "n_known": 1000}, {"n_known": 1000}]
)
def test_it_drafts_with_matrices_of_its_own_or_of_the_target(target, tmp_path, more):
    model = target()
    heads, states = open_eagle(model, write_tiny_eagle(tmp_path / "eagle.gguf", **more))
    model.decode([Span(1, 0, TEXT, 1)])
    drafted, logits = draft(states, heads, 1, 4)
    assert draft(states, heads, 1, 4)[0] == drafted  # what was cut off is forgotten
    n_known = more.get("n_known", model.n_vocab)
    assert [int(np.isfinite(each).sum()) for each in logits] == [n_known] * 4
    heads.close()


def test_rows_of_the_target_are_fused_by_the_first_matrix(target, tmp_path):
    model = target()
    path = write_tiny_eagle(tmp_path / "eagle.gguf")
    heads, states = open_eagle(model, path)
    model.decode([Span(0, 0, TEXT, 1)])
    read = rows(states, 0, len(TEXT))
    matrix = next(each.data for each in gguf.GGUFReader(path).tensors if each.name == "fc.weight")
    (fused,) = heads.decode([MtpSpan(0, 1, TEXT[1:], list((read[:-1] @ matrix.T).astype(np.float32)))])
    logits = fused.logits.copy()
    heads.trim(0, 0)
    (raw,) = heads.decode([MtpSpan(0, 1, TEXT[1:], list(read[:-1]))])
    assert raw.logits == pytest.approx(logits, abs=1e-3)
    heads.close()


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"target_width": 32}, "reads states of 32 dimensions, but the model has 64"),
        ({"layers": (1, 2, 4)}, r"the inputs of layers \[1, 2, 4\], but the model has 4"),
        ({"width": 32}, "lacks output.weight and token_embd.weight"),
    ],
)
def test_a_drafter_of_another_model_is_refused(target, tmp_path, more, reason):
    with pytest.raises(ModelLoadError, match=reason):
        open_eagle(target(), write_tiny_eagle(tmp_path / "eagle.gguf", **more))


def test_where_llama_cpp_would_abort_it_is_refused_by_the_name_of_the_architecture(target, tmp_path):
    with pytest.raises(ModelLoadError, match=r"gives these inputs for .*, not for gemma3"):
        open_eagle(target("gemma3"), write_tiny_eagle(tmp_path / "eagle.gguf"))
    assert why_no_target("qwen3") is None
