import json
from dataclasses import replace

import pytest

from lab.measuring.bench_report import BenchReport, check_plot, draw_plot
from lab.measuring.bench_settings import BenchSettings
from lab.measuring.contest import Run
from lab.measuring.measured_answer import MeasuredAnswer
from lab.measuring.questions import ChatQuestion
from lab.measuring.summary import summarize
from lead import text_table
from shared.errors import ConfigError

STORY, CODE = ChatQuestion("stories", "s", 1), ChatQuestion("code", "c", 2)


def run(way, question, seconds, text="same"):
    return Run(way, 0, question, MeasuredAnswer(text, 11, seconds, 8, 6, first_seconds=0.25))


def report(last_text="same", failures=(), busy=0.0):
    runs = [run("no drafts", STORY, 1.0), run("no drafts", CODE, 1.0)]
    runs += [run("back", STORY, 0.5), run("back", CODE, 0.25, last_text)]
    rows = summarize("m.gguf", runs, baseline="no drafts")
    settings = BenchSettings.from_command_line([])
    step_ms = {1: 50.0, 2: 60.0, 8: 100.0}
    return BenchReport(
        settings, "m.gguf, 2 cores", rows, step_ms, {"back": ["lead --back x"]}, failures, busy
    )


def line(text, *beginning):
    """The cells of the row that begins with these texts."""
    rows = [
        [cell.strip() for cell in each.strip("│").split("│")] for each in text.splitlines() if "│" in each
    ]
    return next(row for row in rows if row[: len(beginning)] == list(beginning))


def test_each_way_has_its_speed_acceptance_first_token_and_texts():
    text = str(report(last_text="other"))
    assert line(text, "back") == ["back", "26.7", "2.67", "75%", "1.50", "250", "1 of 2"]
    assert line(text, "back", "20.0") == ["back", "20.0", "40.0"]


def test_columns_say_what_they_count():
    assert "accepted tokens per step" in str(report())


def test_the_fastest_is_named_with_its_command():
    text = str(report())
    assert text.endswith("Fastest: back, 26.7 tokens/s.\nRun\n\n  lead --back x")
    assert "A step of one token takes 50 ms, 1.20 times as long with 2, 2.00 times as long with 8." in text


def test_texts_that_differ_are_explained():
    assert "--exact" in str(report(last_text="other"))
    assert "--exact" not in str(report())


def test_what_could_not_be_measured_is_said():
    assert "Not measured: MTP: no memory" in str(report(failures=["MTP: no memory"]))


def test_other_programs_that_compute_are_mentioned_before_the_command():
    busy, quiet = report(busy=3.0), report()
    assert (
        "used 3.0 cores at the start. Measure again" in str(busy).split("Fastest, if these figures hold:")[0]
    )
    assert len(json.loads(busy.to_json())["remarks"]) == 1
    assert "cores at the start" not in str(quiet)
    assert json.loads(quiet.to_json())["remarks"] == []


def disturbed(n_accepted):
    """A report whose drafts gave 4.00 times the speed, with so many of 10 tokens accepted in each answer."""
    runs = [run("no drafts", STORY, 1.0), run("back", STORY, 0.25)]
    last = replace(runs[1].measurement, n_accepted=n_accepted)
    rows = summarize("m", [runs[0], replace(runs[1], measurement=last)], baseline="no drafts")
    return replace(report(), rows=rows)


def test_a_speed_up_that_drafts_cannot_give_is_not_recommended():
    found = disturbed(n_accepted=2)
    assert "back: the accepted tokens allow a speed-up of at most 1.25, not 4.00." in str(found)
    assert str(found).endswith("so nothing is recommended. End other programs and measure again.")
    assert len(json.loads(found.to_json())["remarks"]) == 1


def test_a_speed_up_that_accepted_tokens_allow_is_recommended():
    assert "Fastest: back, 40.0 tokens/s." in str(disturbed(n_accepted=8))


def test_json_has_the_same():
    found = json.loads(report(failures=["MTP: no memory"]).to_json())
    assert found["failures"] == ["MTP: no memory"]
    assert [row["speedup"] for row in found["rows"]] == [1.0, 2.667]
    assert found["rows"][1]["by_kind"] == {"stories": 20.0, "code": 40.0}
    assert found["step_ms"] == {"1": 50.0, "2": 60.0, "8": 100.0}
    assert found["commands"] == {"back": ["lead --back x"]}
    assert found["environment"]["versions"]["llama-duo"]


def test_a_narrow_terminal_shows_every_number(monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    row = {"way": "drafts from [the text] itself, and more", "speed": 12345.6, "share": 0.25, "ms": 1234.0}
    columns = {
        "way": ("", ""),
        "speed": ("tokens a second", ".1f"),
        "share": ("accepted", ".0%"),
        "ms": ("ms", ".0f"),
    }
    shown = text_table.text("a [/title]", [row] * 2, columns)
    assert all(text in shown for text in ("12345.6", "25%", "1234", "[/title]"))


# Plots


def test_a_plot_without_a_folder_is_refused_before_anything_is_measured(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        check_plot(tmp_path / "missing" / "speed.svg")


def test_without_matplotlib_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'llama-duo\[bench\]'"):
        check_plot(tmp_path / "speed.svg")


def test_a_plot_has_a_bar_for_each_way(tmp_path):
    pytest.importorskip("matplotlib", reason="an extra: pip install 'llama-duo[bench]'")
    draw_plot(report(), tmp_path / "speed.svg")
    drawn = (tmp_path / "speed.svg").read_text()
    assert all(f"<!-- {text} -->" in drawn for text in ("no drafts", "back", "26.7", "m.gguf, 2 cores"))


def test_a_plot_that_cannot_be_written_is_said(tmp_path):
    pytest.importorskip("matplotlib", reason="an extra: pip install 'llama-duo[bench]'")
    with pytest.raises(ConfigError, match="cannot write"):
        draw_plot(report(), tmp_path / "missing" / "speed.svg")
