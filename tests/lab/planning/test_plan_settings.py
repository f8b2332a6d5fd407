"""The options of `lead plan`."""

from pathlib import Path

import pytest

from lab.planning.arrangements import Machines
from lab.planning.plan_settings import PlanSettings


def read(*arguments):
    return PlanSettings.from_command_line(arguments)


@pytest.mark.parametrize(
    ("text", "seconds"), [("5ms", [0.005]), ("0.3ms,20ms", [0.0003, 0.02]), ("1s, .5s", [1.0, 0.5])]
)
def test_round_trips_are_times_with_a_unit(text, seconds):
    assert list(read("--round-trip", text).round_trips) == pytest.approx(seconds)


def test_other_machines_are_all_combinations_the_fewest_first():
    machines = read("--backs", "2,1", "--back-speed", "0.5,4", "--round-trip", "5ms").machines
    kinds = ((1, False), (2, False), (2, True))
    assert sorted(machines, key=lambda each: (each.n, each.differ)) == [
        Machines(n, 0.005, speed, differ) for n, differ in kinds for speed in (0.5, 4)
    ]
    assert [each.n for each in machines] == [1, 1, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("option", "texts"),
    [
        ("--round-trip", ["5", "fast", "-1ms", "90s", "5ms,", ",".join(["1ms"] * 9)]),
        ("--backs", ["0", "17", "1.5", "two", ",", "1,2,3,4,5"]),
        ("--back-speed", ["0", "-1", "fast", "nan", "1000"]),
        ("--acceptance", ["0", "1", "1.5", "often"]),
    ],
)
def test_anything_else_is_refused_with_a_sentence(option, texts, complaint):
    for text in texts:
        assert option in complaint(read, option, text)


def test_each_draft_model_has_settings_of_its_own():
    settings = read("--draft-model", "a.gguf", "-md", "b.gguf")
    drafts = [each.drafting.draft_model for each in settings.with_each_draft()]
    assert drafts == [Path("a.gguf"), Path("b.gguf")]


@pytest.mark.parametrize(
    ("arguments", "draft_model"),
    [
        (("--model", "m.gguf"), None),
        (("--model", "m.gguf", "--back", "a.gguf"), Path("a.gguf")),
        ((), Path("builtin")),
    ],
)
def test_what_was_named_for_a_back_drafts_too_and_the_demo_has_its_own(arguments, draft_model):
    (only,) = read(*arguments).with_each_draft()
    assert only.drafting.draft_model == draft_model


def test_a_name_that_is_not_installed_is_refused_wherever_it_stands(complaint, monkeypatch):
    packaged = {"pair": ("no_such_package", "pair.gguf", "ask Ann")}
    monkeypatch.setattr("shared.model_files.builtin._PACKAGED", packaged)
    assert "ask Ann" in complaint(read, "--draft-model", "a.gguf", "--draft-model", "pair")


# Hardware that is not here


def test_hardware_that_is_not_here_is_named_as_a_device():
    assert [each.name for each in read("--device", "rtx4090,dgx-spark").hardware] == ["rtx4090", "dgx-spark"]
    assert len(read("--device", "h200").hardware) == 3
    assert not any(read("--device", name).hardware for name in ("CUDA0", "Vulkan1", "MTL0", "none"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--device", "rtx4090,CUDA0"), "CUDA0 is not one of"),
        (("--device", "rtx4091"), "rtx4091 is not one of"),
        (("--device", "rtx4090", "--model", "m.gguf"), "simulated, not measured"),
        (("--device", "rtx4090", "--draft-model", "m.gguf"), "simulated, not measured"),
        (("--rpc", "desk1:50052"), "--rpc: layers on other machines cannot be measured"),
    ],
)
def test_what_cannot_be_planned_is_refused(arguments, message, complaint):
    assert message in complaint(read, *arguments)


def test_help_lists_it(capsys):
    with pytest.raises(SystemExit):
        read("--help")
    assert "m2-ultra" in capsys.readouterr().out
