import json
import shlex
from dataclasses import replace

import pytest

from back.settings import BackSettings
from lab.planning.arrangements import Arrangement, FasterModel, Machines, SpeedForecast
from lab.planning.measurements import AcceptanceRate, DrafterTimes, EngineTimes, PairTimes, SplitTimes
from lab.planning.plan_report import PlanReport, commands
from lab.planning.plan_settings import PlanSettings
from lead.engine.commands import DRAFT_MODEL
from lead.pairing.invite import InviteSettings
from lead.settings.lead_settings import LeadSettings

SPLIT = SplitTimes((0, 1, 2), (3,), {1: 0.06}, 0.002, 1.1, 1.5)
ENGINE = EngineTimes(
    {1: 0.05, 4: 0.055, 8: 0.08}, 0.0, {DRAFT_MODEL: DrafterTimes(0.005, 0.001, 0.1, AcceptanceRate(60, 80))}
)


@pytest.fixture
def report():
    forecasts = [
        SpeedForecast(Arrangement("none"), 20.0, 20.0, 20.0),
        SpeedForecast(Arrangement("engine"), 40.0, 35.0, 44.0),
        SpeedForecast(Arrangement("split", SPLIT), 30.0, 28.0, 31.0),
        SpeedForecast(Arrangement("remote", elsewhere=Machines(1, 0.0003)), 39.0, 28.0, 31.0),
    ]
    commands = [["lead"], ["lead --draft-model x"], ["lead --back x"], ["lead --host", "back"]]
    return PlanReport([PairTimes(ENGINE, [SPLIT])], forecasts, commands, ["A remark."], ["Once"])


def test_the_fastest_is_named_with_its_command(report):
    text = str(report)
    assert "Fastest here: draft model in the engine, 40.0 tokens/s, 2.00 times as fast as without" in text
    assert text.endswith("\n  lead --draft-model x")
    assert "Faster still" not in text
    assert text.index("A remark.") < text.index("arrangement  ") < text.index("Fastest here")


def test_a_back_elsewhere_is_named_too_if_it_is_faster(report):
    forecasts = [*report.forecasts[:3], SpeedForecast(report.forecasts[3].arrangement, 50.0, 40.0, 60.0)]
    text = str(replace(report, forecasts=forecasts))
    assert "Fastest here: draft model in the engine" in text
    assert "Faster still: back on another machine, 0.3 ms away, 50.0 tokens/s" in text
    assert text.endswith("\n  lead --host\n  back")


def test_the_fastest_row_is_named_although_its_second_model_is_only_assumed(report):
    differ = SpeedForecast(
        Arrangement("remote", elsewhere=Machines(2, 0.0003, differ=True)), 60.0, 60.0, 60.0
    )
    forecasts = [*report.forecasts[:3], replace(report.forecasts[3], tokens_per_second=50.0), differ]
    text = str(replace(report, forecasts=forecasts, commands=[*report.commands, ["lead", "back"]]))
    assert (
        "Faster still: 2 backs on other machines, 0.3 ms away, different draft models, 60.0 tokens/s, "
        "3.00 times as fast as without drafts. The other draft model is assumed to be as fast and as "
        "often right. Run" in text
    )


def test_no_fastest_is_certain_while_other_programs_compute(report):
    assert "Fastest here, if these figures hold: draft" in str(replace(report, is_doubtful=True))


def test_what_more_backs_add_is_said(report):
    two = SpeedForecast(Arrangement("remote", elsewhere=Machines(2, 0.0003, 0.5)), 39.0, 28.0, 31.0)
    four = SpeedForecast(Arrangement("remote", elsewhere=Machines(4, 0.0003, 0.5)), 42.0, 28.0, 31.0)
    forecasts = [*report.forecasts[:3], two, four]
    more = replace(report, forecasts=forecasts, commands=[*report.commands, ["lead", "back"]])
    assert "4 backs on other machines, 0.3 ms away, 0.5 times as fast: +8 % over 2" in str(more)
    assert "Gain from more backs" not in str(report)


def test_what_a_second_machine_should_run_is_said_where_it_matters(report):
    one, two, other = (
        SpeedForecast(Arrangement("remote", elsewhere=Machines(n, 0.0003, differ=differ)), rate, 1.0, 99.0)
        for n, differ, rate in ((1, False, 30.0), (2, False, 30.0), (2, True, 33.0))
    )
    commands = [*report.commands[:3], *([["lead", "back"]] * 3)]
    text = str(replace(report, forecasts=[*report.forecasts[:3], one, two, other], commands=commands))
    assert "2 backs on other machines, 0.3 ms away, different draft models: +10 % over 1" in text
    assert "A second machine should run another draft model" in text
    alike = replace(other, tokens_per_second=30.0)
    text = str(replace(report, forecasts=[*report.forecasts[:3], one, two, alike], commands=commands))
    assert "A second machine" not in text


def test_a_slow_back_is_told_what_a_faster_model_would_give(report):
    other = FasterModel(replace(report.forecasts[3], tokens_per_second=24.0), 0.8, 0.01, 0.7, 32.0)
    text = str(replace(report, faster=[other]))
    assert (
        "The speed-up is only 1.20 with the back on another machine, 0.3 ms away. A draft model there that "
        "takes only 0.20 of a step per token would give 1.60. This assumes an acceptance of 70% instead "
        "of 80%." in text
    )


def test_whether_backs_pay_on_such_steps_is_said(report):
    assert "Steps take 10 to 100 ms" in str(report)
    assert json.loads(report.to_json())["prospect"] == "medium"


def test_what_was_measured_is_said(report):
    text = str(report)
    assert "60 of 80 tokens were right: 75%, with a 95 % confidence interval of 65% to 83%." in text
    assert "A step of one token takes 50 ms, 1.10 times as long with 4 and 1.60 times as long with 8." in text
    assert "The draft model takes 5 ms for a token, 0.100 of a step" in text
    assert "While lead and back both compute, these take 1.10 and 1.50 times as long" in text


def test_what_its_columns_mean_is_said(report):
    lines = str(report).splitlines()
    header = next(n for n, line in enumerate(lines) if line.startswith("arrangement"))
    assert lines[header].split() == ["arrangement", "tokens/s", "low", "high", "speed-up"]
    assert lines[header + 2].split()[-4:] == ["40.0", "35.0", "44.0", "2.00"]
    assert lines[header + 5].startswith("low, high: range of tokens/s with the measured acceptance")
    assert "low, high" not in str(replace(report, acceptance=0.5))


def test_json_has_the_same(report):
    found = json.loads(report.to_json())
    assert found["fastest"] == "draft model in the engine"
    assert [row["tokens_per_second"] for row in found["arrangements"]] == [20.0, 40.0, 30.0, 39.0]
    assert found["arrangements"][3]["commands"] == ["lead --host", "back"]
    expected = {"n_right": 60, "n_positions": 80}
    assert found["measured"][0]["engine"]["drafters"]["draft_model"]["acceptance"] == expected
    assert found["texts"] == ["Once"]


def test_of_several_draft_models_the_best_is_named_for_each_place(report):
    def rival(kind, name, rate):
        machines = Machines() if kind == "remote" else None
        return SpeedForecast(Arrangement(kind, None, machines, name), rate, rate, rate)

    rivals = [
        rival("engine", "a.gguf", 40.0),
        rival("engine", "b.gguf", 30.0),
        rival("remote", "b.gguf", 50.0),
    ]
    pairs = [PairTimes(ENGINE, [SPLIT], "a.gguf"), PairTimes(ENGINE, [], "b.gguf")]
    several = replace(report, pairs=pairs, forecasts=[report.forecasts[0], *rivals])
    text = str(several)
    assert (
        "draft model in the engine: a.gguf, 40.0 tokens/s\n  back on another machine, 1 ms away: b.gguf"
        in text
    )
    assert "a.gguf takes 5 ms for a token, 0.100 of a step" in text
    assert "With a back on 1 core (3) with a.gguf, a step takes" in text
    expected = ["draft model in the engine: a.gguf", "back on another machine, 1 ms away: b.gguf"]
    assert json.loads(several.to_json())["best_by_place"] == expected
    assert "The best draft model for each place" not in str(report)


# The commands can be run as they are


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


def test_how_a_draft_model_drafts_inside_stays():
    options = ("--draft-model", "small.gguf", "--draft-max", "5")
    assert "--draft-max 5" in written("engine", *options)[0]
    assert "--draft-max" not in written("none", *options)[0]


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


def test_a_back_on_another_machine_is_invited():
    lead, invite, back = written("remote", "--draft-model", "small.gguf")
    assert read(lead).host == "127.0.0.1"
    assert InviteSettings.from_command_line(shlex.split(invite)[2:]).open
    program, *arguments = shlex.split(back)
    settings = BackSettings.from_command_line(arguments)
    assert (program, str(settings.source.model)) == ("back", "small.gguf")


def test_a_second_back_has_another_draft_model_and_a_code_of_its_own():
    settings = PlanSettings.from_command_line(["--model", "big.gguf", "--draft-model", "small.gguf"])
    arrangement = Arrangement("remote", elsewhere=Machines(2, differ=True))
    _, *invited = commands(arrangement, settings, range(4))
    one, other = "back --model small.gguf --join CODE", "back --model ANOTHER.gguf --join CODE"
    assert invited == ["lead invite --open", one, "lead invite --open", other]


def test_how_the_model_is_loaded_stays():
    given = [
        *("--ctx-size", "2048", "--no-mmap", "--cache-type-k", "q8_0"),
        *("--threads", "3", "--tensor-split", "1,2"),
    ]
    settings = read(written("engine", "--draft-model", "small.gguf", *given)[0])
    assert settings.compute == PlanSettings.from_command_line(["--model", "m", *given]).compute
