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


@pytest.mark.parametrize("text", ["5", "fast", "-1ms", "90s", "5ms,", ",".join(["1ms"] * 9)])
def test_anything_else_is_refused_with_a_sentence(text, capsys):
    with pytest.raises(SystemExit) as ended:
        read("--round-trip", text)
    assert ended.value.code == 2
    assert "--round-trip" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "1", "1.5", "often"])
def test_an_acceptance_is_between_zero_and_one(text, capsys):
    with pytest.raises(SystemExit):
        read("--acceptance", text)
    assert "--acceptance" in capsys.readouterr().err


def test_json_is_spelled_as_everywhere():
    assert read("--json").as_json
    assert not read().as_json


def test_layers_on_other_machines_are_refused(capsys):
    with pytest.raises(SystemExit):
        read("--rpc", "desk1:50052")
    assert "--rpc: layers on other machines cannot be planned" in capsys.readouterr().err
