import numpy as np
import pytest

from back.program import setup_for
from shared.convert.converted_file import read_conversion
from shared.llama.span import Span
from shared.llama.vocabulary import Vocabulary
from shared.protocol import Open
from shared.translation.vocabulary_pair import vocabulary_pair
from tests.shared.convert import gpt2_reference
from tests.shared.convert.conftest import small_gpt2
from tests.toy_model import GREEDY


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setattr("shared.translation.stored_pair.user_cache_path", lambda _name: tmp_path)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    folder = tmp_path_factory.mktemp("foreign")
    gpt2_reference.write_folder(folder / "gpt2", *small_gpt2())
    read_conversion(folder / "gpt2", None).file().write_outline(folder / "gpt2.gguf")
    return Vocabulary.load(folder / "gpt2.gguf")


def drafted(setup, tokens):
    """The first draft after `tokens`."""
    drafter = setup.make()
    drafter.handle(Open(sequence="s", sampling=GREEDY, tokens=tokens))
    while not drafter.idle:
        drafter.step()
        drafter.check_integrity()
    setup.close()
    return drafter.sequences["s"].draft().tokens


def prompt(vocabulary):
    return vocabulary.tokenize("Once upon a time", add_special=False, parse_special=False)


def test_with_another_vocabulary_the_lead_s_is_named_and_the_log_says_so(
    back_settings, back_model, foreign, caplog
):
    setup = setup_for(back_settings, back_model, foreign)
    setup.close()
    assert setup.vocabulary == foreign.identify()
    assert "translating: spec-demo-draft and" in caplog.text


def test_a_translated_draft_begins_with_what_is_likeliest(back_settings, back_model, foreign):
    tokens = prompt(back_model.vocabulary)
    for slot in range(back_settings.n_slots):
        back_model.trim(slot, 0)
    (rows,) = back_model.decode([Span(0, 0, tokens, 1)])
    weights = np.exp(rows[0] - rows[0].max())
    whole = vocabulary_pair(back_model.vocabulary, foreign).whole
    mass = np.bincount(whole[whole >= 0], weights[whole >= 0])
    assert drafted(setup_for(back_settings, back_model, foreign), prompt(foreign))[0] == mass.argmax()


def test_the_next_drafter_begins_with_an_empty_cache(back_settings, back_model, foreign):
    translated = drafted(setup_for(back_settings, back_model, foreign), prompt(foreign))
    own = drafted(setup_for(back_settings, back_model), prompt(back_model.vocabulary))
    assert drafted(setup_for(back_settings, back_model, foreign), prompt(foreign)) == translated
    assert drafted(setup_for(back_settings, back_model), prompt(back_model.vocabulary)) == own
