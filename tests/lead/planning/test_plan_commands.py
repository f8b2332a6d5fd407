"""The commands can be run as they are."""

import shlex

import pytest

from back.settings import BackSettings
from lead.planning.arrangements import Arrangement
from lead.planning.measurements import SplitTimes
from lead.planning.plan_commands import commands
from lead.planning.plan_settings import PlanSettings
from lead.settings.lead_settings import LeadSettings

SPLIT = SplitTimes((0, 1, 2), (3,), {1: 1.0}, 0.1, 1.0, 1.0)


def written(kind, *arguments, split=None):
    settings = PlanSettings.from_command_line(["--model", "big one.gguf", *arguments])
    return commands(Arrangement(kind, split), settings, range(4))


def read(command):
    """The lead's settings for a command."""
    program, *arguments = shlex.split(command)
    assert program == "lead"
    return LeadSettings.from_command_line(arguments)


def test_without_a_draft_model_none_is_loaded_and_all_cores_compute():
    settings = read(written("none", "--draft-model", "small.gguf")[0])
    assert (settings.drafting.draft_model, settings.n_threads) == (None, 4)
    assert (str(settings.source.model), settings.drafting.mtp) == ("big one.gguf", "off")


def test_a_draft_model_in_the_engine():
    settings = read(written("engine", "--draft-model", "small.gguf")[0])
    assert (str(settings.drafting.draft_model), settings.n_threads) == ("small.gguf", 4)


@pytest.mark.parametrize(
    ("given", "inside", "back"),
    [
        (("--back", "small.gguf"), "--draft-model small.gguf", "--back small.gguf"),
        (("--hf-repo-draft", "a/b:Q8_0"), "--hf-repo-draft a/b:Q8_0", "--back-hf-repo a/b:Q8_0"),
        ((), "--draft-model builtin", "--back builtin"),
    ],
)
def test_the_draft_model_is_named_as_it_was(given, inside, back):
    assert inside in written("engine", *given)[0]
    assert back in written("split", *given, split=SPLIT)[0]


def test_a_back_gets_the_cores_that_the_lead_does_not_have():
    settings = read(written("split", "--back", "small.gguf", split=SPLIT)[0])
    assert (settings.cpus, settings.own_back.back_cpus) == ("0-2", "3")


def test_a_back_of_a_lead_on_a_gpu_stays_on_the_cpu():
    split = SplitTimes((0,), (1, 2, 3), {1: 1.0}, 0.1, 1.0, 1.0, back_on_cpu=True)
    assert read(written("split", "--back", "small.gguf", split=split)[0]).own_back.back_gpu_layers == 0


def test_cores_that_were_chosen_stay_chosen():
    settings = read(written("engine", "--draft-model", "small.gguf", "--cpus", "0")[0])
    assert (settings.cpus, settings.compute.threads) == ("0", 0)


def test_on_a_system_that_cannot_pin_threads_are_divided(monkeypatch):
    monkeypatch.setattr("shared.cpus.can_pin", lambda: False)
    settings = read(written("split", "--back", "small.gguf", split=SPLIT)[0])
    assert (settings.cpus, settings.n_threads, settings.own_back.n_threads) == (None, 3, 1)


def test_a_back_on_another_machine_is_a_second_command():
    lead, back = written("remote", "--draft-model", "small.gguf")
    assert read(lead).host == "0.0.0.0"
    program, *arguments = shlex.split(back)
    settings = BackSettings.from_command_line(arguments)
    assert (program, str(settings.source.model)) == ("back", "small.gguf")


def test_how_the_model_is_loaded_stays():
    given = (
        "--ctx-size",
        "2048",
        "--no-mmap",
        "--cache-type-k",
        "q8_0",
        "--threads",
        "3",
        "--tensor-split",
        "1,2",
    )
    settings = read(written("engine", "--draft-model", "small.gguf", *given)[0])
    assert settings.compute == PlanSettings.from_command_line(["--model", "m", *given]).compute
