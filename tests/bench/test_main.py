import sys
from types import SimpleNamespace

import pytest

from bench.__main__ import PARTS, main
from shared.errors import ConfigError


@pytest.mark.parametrize("arguments", [[], ["fast"]])
def test_without_a_part_the_parts_are_listed(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert all(part in said for part in PARTS)


def test_what_a_person_can_change_is_said_in_a_sentence(monkeypatch):
    def refuse(_):
        raise ConfigError("no room")

    monkeypatch.setitem(sys.modules, "bench.speed", SimpleNamespace(main=refuse))
    with pytest.raises(SystemExit, match="bench speed: no room"):
        main(["speed"])


def test_ctrl_c_is_the_exit_status(monkeypatch, capsys):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "bench.speed", SimpleNamespace(main=interrupt))
    with pytest.raises(SystemExit) as ended:
        main(["speed"])
    assert ended.value.code == 130
    assert "bench speed: cancelled" in capsys.readouterr().err
