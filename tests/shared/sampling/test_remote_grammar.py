import contextlib
import errno
import os
import signal
from pathlib import Path
from unittest.mock import Mock

import pytest

from shared.errors import PendingAnswerError, RequestError, UnavailableError
from shared.model_files.builtin import builtin_target
from shared.sampling import remote_grammar
from shared.sampling.grammar import FollowedGrammar, GrammarMatcher
from shared.sampling.remote_grammar import GrammarServer, TimeBudget

HEADER = '%llguidance {"no_forcing": true}\n'
NUMBERS = HEADER + 'start: /[0-9]+/ "." /[0-9]+/ "!"\n'
AMBIGUOUS = HEADER + "start: a\na: " + " | ".join("a " * n for n in range(2, 60)) + " | /[ -~]/\n"
"""A grammar of which one mask takes seconds."""
ENDLESS = 240.0


@pytest.fixture(scope="module")
def budget():
    return TimeBudget()


@pytest.fixture(scope="module")
def server(budget):
    server = GrammarServer(builtin_target(), budget)
    yield server
    server.close()


@pytest.fixture(autouse=True)
def _endless(budget):
    budget.set(ENDLESS)


@contextlib.contextmanager
def frozen(server):
    """While this context lasts, nothing new is answered, even if this process is slow."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def ids(vocabulary, text):
    return vocabulary.tokenize(text, add_special=False, parse_special=False)


def test_it_answers_as_a_grammar_in_this_process(server, vocabulary):
    here, there = FollowedGrammar(GrammarMatcher(NUMBERS, vocabulary)), server.follow(NUMBERS)
    for token in ids(vocabulary, "12.5!"):
        assert there.allowed().tolist() == here.allowed().tolist()
        asked = [token, *range(40), *vocabulary.end_tokens]
        assert there.allows(asked) == here.allows(asked)
        here.accept(token)
        there.accept(token)
    end = min(vocabulary.end_tokens)
    assert there.allows([end]) == here.allows([end]) == [True]
    here.rollback(3)
    there.rollback(3)
    assert there.allowed().tolist() == here.allowed().tolist()


def test_a_copy_goes_its_own_way(server, vocabulary):
    (digit,), (point,) = ids(vocabulary, "1"), ids(vocabulary, ".")
    grammar = server.follow(NUMBERS)
    grammar.accept(digit)
    copy = grammar.copy()
    copy.accept(point)
    assert copy.allows([digit, point]) == [True, False]
    assert grammar.allows([digit, point]) == [True, True]


def test_copies_that_are_gone_are_dropped_there_too(server, vocabulary):
    grammar = server.follow(NUMBERS)
    for _ in range(50):
        assert grammar.copy().allows(ids(vocabulary, "7")) == [True]
    assert grammar.allows(ids(vocabulary, "7")) == [True]
    assert not grammar._channel.unsent


def test_after_a_token_that_may_not_come_everything_may_until_it_is_taken_back(server, vocabulary):
    grammar, wrong = server.follow(NUMBERS), ids(vocabulary, "x")
    for token in wrong:
        grammar.accept(token)
    assert grammar.allows([*wrong, 5]) == [True, True]
    grammar.rollback(len(wrong))
    assert grammar.allows(wrong) == [False]


def test_without_time_it_is_asked_again_later(server, budget):
    budget.set(0.0)
    with frozen(server):
        grammar = server.follow(NUMBERS)
        with pytest.raises(PendingAnswerError):
            grammar.allowed()
        assert not grammar.is_ready
    budget.set(ENDLESS)
    assert grammar.is_ready
    budget.set(0.0)
    assert len(grammar.allowed()) > 0


def test_a_long_text_that_is_resumed_does_not_wait_until_somebody_reads_it(server, budget, vocabulary):
    grammar_text, (digit,) = HEADER + "start: /[0-9]+/\n", ids(vocabulary, "1")
    assert server.follow(grammar_text).allows([digit])  # the process runs
    budget.set(0.0)
    with frozen(server):
        grammar = server.follow(grammar_text)
        for _ in range(60_000):
            grammar.accept(digit)
        with pytest.raises(PendingAnswerError):
            grammar.allows([digit])
    budget.set(ENDLESS)
    assert grammar.allows([digit]) == [True]
    grammar.rollback(60_000)
    assert grammar.allows([digit, *vocabulary.end_tokens])[:2] == [True, False]


def test_an_answer_to_what_is_no_longer_asked_is_passed_over(server, budget, vocabulary):
    (digit,), (point,) = ids(vocabulary, "1"), ids(vocabulary, ".")
    budget.set(0.0)
    with frozen(server):
        grammar = server.follow(NUMBERS)
        with pytest.raises(PendingAnswerError):
            grammar.allows([point])
    grammar.accept(digit)
    budget.set(ENDLESS)
    assert grammar.allows([point]) == [True]


def test_what_does_not_compile_is_an_error_of_the_one_who_asks(server):
    with pytest.raises(RequestError, match="unknown name"):
        server.follow(HEADER + "start: nothing\n").allowed()


def test_an_optional_grammar_that_does_not_compile_allows_everything(server):
    assert server.follow(HEADER + "start: nothing\n", is_optional=True).allows([1, 2]) == [True, True]


def test_a_grammar_that_takes_too_long_ends_alone(server, vocabulary, monkeypatch):
    monkeypatch.setattr(remote_grammar, "_MAX_OPENED", 2)  # each time takes a second of CPU time
    other, costly = server.follow(NUMBERS), server.follow(AMBIGUOUS)
    with pytest.raises(RequestError, match="too much time or memory"):
        costly.allowed()
    assert other.allows(ids(vocabulary, "7")) == [True]


def test_while_a_grammar_takes_long_another_is_answered(server, budget, vocabulary):
    costly, other = server.follow(AMBIGUOUS), server.follow(NUMBERS)
    budget.set(0.0)
    with pytest.raises(PendingAnswerError):
        costly.allowed()
    budget.set(ENDLESS)
    assert other.allows(ids(vocabulary, "7")) == [True]


def test_a_grammar_that_is_lost_with_the_server_is_followed_by_the_next_one(budget, vocabulary):
    server = GrammarServer(builtin_target(), budget)
    server.start()
    budget.set(0.0)
    os.kill(server.pid, signal.SIGSTOP)
    grammar = server.follow(NUMBERS)
    with pytest.raises(PendingAnswerError):
        grammar.allows(ids(vocabulary, "7"))
    os.kill(server.pid, signal.SIGKILL)
    budget.set(ENDLESS)
    assert grammar.allows(ids(vocabulary, "7")) == [True]
    server.close()


def kill_followers(server):
    for pid in Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split():
        os.kill(int(pid), signal.SIGKILL)


def test_a_grammar_whose_process_is_killed_before_it_answers_is_followed_by_another(server, vocabulary):
    assert server.follow(NUMBERS).allows([0])  # the server runs
    grammar = server.follow(NUMBERS)
    assert grammar._channel._supervision.poll(ENDLESS)
    kill_followers(server)
    assert grammar.allows(ids(vocabulary, "7")) == [True]


def test_a_grammar_whose_process_is_killed_in_a_long_text_is_followed_by_another(server, vocabulary):
    digit, dot, end = (ids(vocabulary, text) for text in ("7", ".", "!"))
    grammar = server.follow(NUMBERS)
    for _ in range(2000):  # more than fits into a socket
        assert grammar.allows(digit) == [True]
        grammar.accept(*digit)
    copy = grammar.copy()
    copy.accept(*dot)
    kill_followers(server)
    assert (grammar.allows(dot), grammar.allows(end)) == ([True], [False])
    kill_followers(server)
    copy.accept(*digit)
    assert copy.allows(end) == [True]


def test_a_question_that_takes_too_long_in_a_text_is_the_fault_of_the_grammar(
    server, vocabulary, monkeypatch
):
    monkeypatch.setattr(remote_grammar, "_MAX_OPENED", 1)
    grammar = server.follow(HEADER + AMBIGUOUS.removeprefix(HEADER).replace("start: a", 'start: "7" a', 1))
    assert grammar.allows(ids(vocabulary, "7")) == [True]
    grammar.accept(*ids(vocabulary, "7"))
    with pytest.raises(RequestError, match="too much time or memory"):
        grammar.allowed()


def test_a_server_that_never_starts_is_given_up():
    server = GrammarServer(Path("no.gguf"), TimeBudget())
    with pytest.raises(UnavailableError, match="does not start"):
        server.follow(NUMBERS).allowed()
    server.close()


@pytest.fixture
def lacking(server, monkeypatch):
    """While this context lasts, there is no descriptor, memory or process for another grammar."""
    monkeypatch.setattr(remote_grammar, "_RETRY_SECONDS", 0.001)

    @contextlib.contextmanager
    def lacking():
        with monkeypatch.context() as patch:
            patch.setattr(server, "open", Mock(side_effect=OSError(errno.EMFILE, "none is left")))
            yield

    return lacking


def test_without_a_process_for_it_a_grammar_waits_and_goes_on(server, budget, vocabulary, lacking):
    (digit,), (point,) = ids(vocabulary, "1"), ids(vocabulary, ".")
    with lacking():
        grammar = server.follow(NUMBERS)
        grammar.accept(digit)
        budget.set(0.0)
        with pytest.raises(PendingAnswerError):
            grammar.allows([point])
        assert not grammar.is_ready
    budget.set(ENDLESS)
    assert grammar.allows([point]) == [True]


def test_a_lack_that_lasts_is_not_the_fault_of_the_grammar(server, lacking, monkeypatch):
    monkeypatch.setattr(remote_grammar, "_PATIENCE_SECONDS", 0.005)
    with lacking(), pytest.raises(UnavailableError, match="try again in a moment"):
        server.follow(NUMBERS).allowed()


def test_no_descriptor_is_left_behind(server, vocabulary):
    def n_open():
        return len(list(Path("/dev/fd").iterdir()))

    server.follow(NUMBERS).allows([0])  # the first one starts the fork server
    n_before = n_open()
    for _ in range(5):
        server.follow(NUMBERS).copy().allows(ids(vocabulary, "7"))
    assert n_open() == n_before


def test_a_budget_is_for_all_questions_together():
    class Connection:
        def __init__(self):
            self.waits = []

        def poll(self, seconds):
            self.waits.append(seconds)
            return False

    ticks, connection = iter([0.0, 0.75, 1.0, 1.5, 2.0, 2.5]), Connection()
    budget = remote_grammar.TimeBudget(clock=lambda: next(ticks))
    budget.set(1.0)
    assert [budget.poll(connection) for _ in range(3)] == [False] * 3
    assert connection.waits == [1.0, 0.25, 0.0]
