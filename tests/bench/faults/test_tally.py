from bench.faults.answers import Answer, Choice
from bench.faults.asking import Outcome
from bench.faults.requests import CHAT, MixedRequest
from bench.faults.tally import Tally

REQUEST = MixedRequest(3, "chat", CHAT, {})


def answer(text="Hi", *, done=True):
    return Answer({0: Choice(text, finish_reason="stop")}, 4, 2, done=done)


def outcome(text="Hi", *, done=True, **fields):
    return Outcome(REQUEST, 1.0, 4.0, answer(text, done=done), **fields)


def tallied(*outcomes):
    tally = Tally({3: answer()})
    for each in outcomes:
        tally.add(each)
    return tally


def test_an_answer_as_expected_is_no_failure():
    tally = tallied(outcome(), outcome(errors=["503"]))
    assert (tally.n_requests, tally.n_tokens, tally.failures) == (2, 4, [])
    assert tally.errors == {"503": 1}


def test_a_changed_answer_is_a_failure_with_what_differs():
    tally = tallied(outcome("Ho"))
    assert (tally.n_changed, tally.n_lost) == (1, 0)
    assert tally.failures[0].reasons == ("text",)


def test_an_answer_that_is_lost_is_not_also_changed_if_it_began_right():
    tally = tallied(outcome("H", done=False, unterminated=True))
    assert (tally.n_changed, tally.n_lost, tally.n_unterminated) == (0, 1, 1)
    assert tally.failures[0].reasons == ("lost", "unterminated")


def test_a_client_that_left_has_lost_nothing_but_saw_the_right_beginning():
    tally = tallied(outcome("H", done=False, left=True), outcome("x", done=False, left=True))
    assert (tally.n_left, tally.n_lost, tally.n_changed) == (2, 0, 1)
    assert [failure.reasons for failure in tally.failures] == [("beginning",)]


def test_the_longest_pause_and_answer_are_kept():
    tally = tallied(outcome(longest_pause=2.0), outcome(longest_pause=1.0))
    assert (tally.longest_pause, tally.longest_answer) == (2.0, 3.0)
