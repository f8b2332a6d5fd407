import pytest

from shared.diagnostics.findings import DoctorReport, exit_with, problem
from shared.diagnostics.preflight import PreflightReport


def with_problem():
    report = PreflightReport()
    report.problems.append("no model")
    return report


@pytest.mark.parametrize(
    ("report", "status", "words"),
    [
        (PreflightReport(), 0, "This machine can run it."),
        (with_problem(), 1, "PROBLEM: no model"),
        (DoctorReport([problem("no lead")]), 1, "no lead"),
    ],
)
def test_a_report_is_printed_and_its_status_is_the_exit_status(capsys, report, status, words):
    with pytest.raises(SystemExit) as ended:
        exit_with(report)
    assert ended.value.code == status
    assert words in capsys.readouterr().out


def test_what_a_report_quotes_cannot_control_the_terminal(capsys):
    report = PreflightReport()
    report.add("model", "\x1b]0;evil\x07\u202e\u061c\nThis machine can run it.")
    report.problems.append("\x9b31m\nnot a problem")
    with pytest.raises(SystemExit):
        exit_with(report)
    shown = capsys.readouterr().out
    assert not set("\x1b\x07\u202e\u061c\x9b") & set(shown)
    assert [line for line in shown.splitlines() if line.startswith(("This", "not a"))] == []
