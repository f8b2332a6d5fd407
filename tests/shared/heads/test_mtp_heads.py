import pytest

from shared.errors import ModelLoadError
from shared.heads.hidden_sources import NextnStates
from shared.heads.mtp_heads import has_heads, is_heads_file, open_heads
from shared.heads.mtp_span import MtpSpan
from shared.llama.span import Span
from tests.shared.heads.conftest import rows, rows_in_company
from tests.shared.llama.conftest import OF_THREE, TEXT
from tests.shared.model_files.gguf_copies import without_tensors
from tests.tiny_models import WITH_HEADS, TinyModel, write_tiny_model


@pytest.fixture
def model_with_heads(opened, tiny_with_heads):
    """Opens a tiny model with a head; returns it and the states that it keeps."""

    def open_model(architecture):
        model = opened(tiny_with_heads(architecture), OF_THREE, with_heads=True)
        return model, NextnStates(model)

    return open_model


def draft(states, heads, slot, tokens, n):
    """A plain loop: the whole text with the target's states, then one token after the other."""
    read = [states.nothing, *(states.state(slot, i) for i in range(len(tokens) - 1))]
    (output,) = heads.decode([MtpSpan(slot, 0, tokens, read)])
    drafted = []
    for i in range(n):
        drafted.append(int(output.logits.argmax()))
        span = MtpSpan(slot, len(tokens) + i, drafted[-1:], [output.state.copy()])
        (output,) = heads.decode([span])
    heads.trim(slot, 0)
    return drafted


@pytest.mark.parametrize("architecture", WITH_HEADS)
def test_the_states_of_all_tokens_are_kept_in_whatever_company_they_are_decoded(
    model_with_heads, architecture
):
    model, states = model_with_heads(architecture)
    rows_in_company(model, states)


@pytest.mark.parametrize("architecture", WITH_HEADS)
def test_a_head_reads_in_parts_what_it_reads_at_once(model_with_heads, architecture):
    model, states = model_with_heads(architecture)
    model.decode([Span(1, 0, TEXT, 1)])
    heads = open_heads(model)
    read = [states.nothing, *rows(states, 1, len(TEXT) - 1)]
    (whole,) = heads.decode([MtpSpan(1, 0, TEXT, read)])
    logits = whole.logits.copy()
    heads.decode([MtpSpan(0, 0, TEXT[:5], read[:5])])
    part, _ = heads.decode([MtpSpan(0, 5, TEXT[5:], read[5:]), MtpSpan(2, 0, TEXT[:1], read[:1])])
    assert part.logits == pytest.approx(logits, abs=1e-3)
    heads.close()


def test_what_was_cut_off_is_forgotten(model_with_heads):
    model, states = model_with_heads("glm4moe")
    model.decode([Span(0, 0, TEXT, 1)])
    heads = open_heads(model)
    first = draft(states, heads, 0, TEXT, 4)
    assert draft(states, heads, 0, TEXT, 4) == first
    heads.close()


def test_a_copy_has_the_states_of_its_source(model_with_heads):
    model, states = model_with_heads("glm4moe")
    model.decode([Span(0, 0, TEXT, 1)])
    model.copy(0, 1, 6)
    assert (rows(states, 1, 6) == rows(states, 0, 6)).all()


def test_a_padded_token_has_its_own_state(model_with_heads):
    model, states = model_with_heads("glm4moe")
    model.pads_single_tokens = True
    model.decode([Span(0, 0, TEXT[:1], 1)])
    model.trim(0, 1)
    model.decode([Span(0, 1, TEXT[1:2], 1)])
    assert states.first(0, TEXT[:3]) == 0


def test_the_memory_of_the_heads_is_that_of_one_layer(model_with_heads):
    model, _ = model_with_heads("glm4moe")
    heads = open_heads(model)
    assert heads.memory_size.full_attention == pytest.approx(512 * 2 * 64 * 2, rel=0.1)
    assert heads.memory_size.computing > 0
    heads.close()


@pytest.mark.parametrize("architecture", ["qwen35", "glm4moe"])
def test_heads_in_a_file_of_their_own_draft_the_same(
    opened, model_with_heads, tiny_with_heads, tmp_path, architecture
):
    whole, states = model_with_heads(architecture)
    path, alone = tiny_with_heads(architecture), tmp_path / "mtp.gguf"
    without_tensors(path, alone, lambda name: name.startswith(("blk.0.", "blk.1.", "blk.2.", "blk.3.")))
    assert not is_heads_file(path)
    if architecture == "glm4moe":  # of qwen35 llama.cpp does not load a file that names heads without them
        path = without_tensors(path, tmp_path / "trunk.gguf", lambda name: name.startswith("blk.4."))
    trunk = opened(path, OF_THREE, with_heads=has_heads(path))
    assert is_heads_file(alone)
    drafts = []
    for model, kept, own in ((whole, states, None), (trunk, NextnStates(trunk), alone)):
        heads = open_heads(model, own)
        model.decode([Span(0, 0, TEXT, 1)])
        drafts.append(draft(kept, heads, 0, TEXT, 4))
        heads.close()
    assert drafts[0] == drafts[1]


def test_heads_of_another_model_are_refused(opened, tiny_with_heads, tmp_path):
    other = opened(write_tiny_model(TinyModel("llama", width=96), tmp_path / "other.gguf"), OF_THREE)
    with pytest.raises(ModelLoadError, match="does not have the MTP heads"):
        open_heads(other, tiny_with_heads("glm4moe"))


def test_a_file_with_a_head_is_recognized(tiny_with_heads, tiny_model, tmp_path):
    assert has_heads(tiny_with_heads("glm4moe"))
    assert not has_heads(tiny_model("glm4moe"))
    assert not has_heads(tiny_model("llama"))
    assert not has_heads(tmp_path / "missing.gguf")
