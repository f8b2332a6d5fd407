import pytest

from shared.diagnostics.findings import DoctorReport, problem
from shared.diagnostics.preflight import PreflightReport
from shared.diagnostics.print_report import exit_with


def with_problem():
    report = PreflightReport()
    report.add_problem("no model")
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
