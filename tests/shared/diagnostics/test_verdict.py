import pytest

from shared.diagnostics.check import Report
from shared.diagnostics.doctor.diagnosis import Diagnosis, problem
from shared.diagnostics.verdict import end_with


def complaint():
    report = Report()
    report.complain("no model")
    return report


@pytest.mark.parametrize(
    ("verdict", "status", "words"),
    [
        (Report(), 0, "This machine can run it."),
        (complaint(), 1, "PROBLEM: no model"),
        (Diagnosis([problem("no lead")]), 1, "no lead"),
    ],
)
def test_a_verdict_is_told_and_ends_the_program(capsys, verdict, status, words):
    with pytest.raises(SystemExit) as ended:
        end_with(verdict)
    assert ended.value.code == status
    assert words in capsys.readouterr().out
