"""A draft model that knows the text, in another vocabulary."""

import json

import pytest

from bench import translation
from shared.errors import TranslationError
from shared.models.builtin import builtin_draft, builtin_target


def test_nothing_is_lost_between_equal_vocabularies(capsys):
    with pytest.raises(SystemExit) as end:
        translation.main([str(builtin_draft()), str(builtin_target())])
    assert end.value.code == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (summary["pairs"], summary["changed"], summary["right_min"]) == (2, 0, 1.0)


def test_a_pair_that_cannot_translate_is_named(capsys, monkeypatch):
    def refuse(*_):
        raise TranslationError("it changes texts")

    monkeypatch.setattr(translation, "vocabulary_pair", refuse)
    with pytest.raises(SystemExit) as end:
        translation.main([str(builtin_draft()), str(builtin_target())])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert "it changes texts" in out
    assert json.loads(out.splitlines()[-1])["refused"] == 2


def test_round_trips_of_many_files_are_counted(capsys):
    with pytest.raises(SystemExit) as end:
        translation.main(["--round-trips", str(builtin_draft()), str(builtin_target())])
    assert end.value.code == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"pairs": 2, "changed": [], "refused": {}}
