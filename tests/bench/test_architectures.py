import json

import pytest

from bench.architectures import finish, rows_of
from bench.tiny_models import ArchitectureError, TinyModel

COLUMNS = {"architecture": ("architecture", ""), "n_wrong": ("wrong", "d")}


def row(architecture, n_wrong=0):
    return {"architecture": architecture, "n_wrong": n_wrong}


def test_each_model_is_there_while_it_is_tried():
    seen = []

    def try_one(architecture, path):
        seen.append(path)
        assert path.is_file()
        yield row(architecture)

    assert list(rows_of(map(TinyModel, ["llama", "qwen2"]), try_one)) == [row("llama"), row("qwen2")]
    assert not any(path.exists() for path in seen)


def test_a_model_with_which_nothing_can_be_tried_is_left_out(capsys):
    def refuse(_architecture, _path):
        raise ArchitectureError("no numbers")

    assert list(rows_of([TinyModel("llama")], refuse)) == []
    assert "llama: no numbers" in capsys.readouterr().err


def last_line(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_wrong_row_is_a_failure_and_is_reported_all_the_same(capsys):
    with pytest.raises(SystemExit, match="1"):
        finish("part", "title", [row("llama", 2)], COLUMNS)
    assert last_line(capsys) == {"part": "part", "rows": [row("llama", 2)]}
