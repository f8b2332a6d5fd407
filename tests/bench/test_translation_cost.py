"""What translating costs."""

from bench import translation_cost
from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import builtin_draft, builtin_target
from shared.translation import stored_pair


def test_both_ways_are_timed(monkeypatch, tmp_path):
    monkeypatch.setattr(stored_pair, "user_cache_path", lambda _name: tmp_path)
    monkeypatch.setattr(translation_cost, "_WIDTHS", (64,))
    monkeypatch.setattr(translation_cost, "_N_ROUNDS", 1)
    (row,) = translation_cost.run(builtin_draft(), Vocabulary.load(builtin_target()))
    assert row["width"] == 64
    assert row["own_ms"] > 0
    assert row["translated_ms"] > 0
    assert 0 < row["passes"] < 3
