from bench.faults.answers import Answer, Choice
from bench.faults.asking import Outcome, Tally
from bench.faults.campaign import Memory, Result
from bench.faults.injector import Fault, Happened
from bench.faults.requests import CHAT, MixedRequest
from bench.faults.summary import failure_lines, holds, show

REQUEST = MixedRequest(7, "stop strings", CHAT, {})


def happened(kind, began, ended):
    return Happened(Fault(began, kind.partition("-")[0], 0, kind, ended - began, 0.0), began, ended)


HAPPENED = [happened("link-cut", 0, 0), happened("engine-stopped", 2, 4), happened("back-killed", 5, 9)]


def answer(text):
    return Answer({0: Choice(text)}, done=True)


def result(text="Hi", n_left_running=0):
    tally = Tally({7: answer("Hi")})
    tally.add(Outcome(REQUEST, 3.0, 5.0, answer(text), errors=["503"]))
    memory = Memory({"front": 100.0}, {"front": 110.0, "lead.engine": 50.0})
    return Result(tally, HAPPENED, memory, {"stale": 385}, 12.0, n_left_running, "")


def test_everything_holds_only_if_nothing_failed_and_nothing_runs_on():
    assert [holds(each) for each in (result(), result("Ho"), result(n_left_running=1))] == [
        True,
        False,
        False,
    ]


def test_a_failure_names_what_is_needed_to_ask_it_again():
    failed = result("Ho")
    assert failure_lines(failed.tally, failed.happened, "python -m bench faults --seed 5") == [
        "request 7 (stop strings), 3.0 to 5.0 s: text; errors: 503",
        "  python -m bench faults --seed 5 --only 7 --faults back-killed,engine-stopped",
    ]


def test_the_tables_name_faults_and_errors(capsys):
    show({"control": result(), "faults": result()})
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("control", "engine-stopped", "503", "stop strings", "110.0"))
