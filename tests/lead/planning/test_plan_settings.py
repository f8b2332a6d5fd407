"""What can be said to `lead plan`."""

import pytest

from lead.planning.plan_settings import PlanSettings


def read(*arguments):
    return PlanSettings.from_command_line(arguments)


@pytest.mark.parametrize(
    ("text", "seconds"), [("5ms", [0.005]), ("0.3ms,20ms", [0.0003, 0.02]), ("1s, .5s", [1.0, 0.5])]
)
def test_round_trips_are_times_with_a_unit(text, seconds):
    assert list(read("--round-trip", text).round_trips) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("option", "texts"),
    [
        ("--round-trip", ["5", "fast", "-1ms", "90s", "5ms,", ",".join(["1ms"] * 9)]),
        ("--acceptance", ["0", "1", "1.5", "often"]),
    ],
)
def test_anything_else_is_refused_with_a_sentence(option, texts, capsys):
    for text in texts:
        with pytest.raises(SystemExit) as ended:
            read(option, text)
        assert ended.value.code == 2
        assert option in capsys.readouterr().err


def test_layers_on_other_machines_are_refused(capsys):
    with pytest.raises(SystemExit):
        read("--rpc", "desk1:50052")
    assert "--rpc: layers on other machines cannot be planned" in capsys.readouterr().err
