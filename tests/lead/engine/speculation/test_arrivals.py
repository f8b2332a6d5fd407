import pytest

from lead.engine.speculation.arrivals import Arrivals
from lead.engine.speculation.drafts import Drafts, DraftTree


class Watching:
    """One sequence with 10 tokens from time 0 on, and a source that drafts for it."""

    def __init__(self, n_tokens=10):
        self.arrivals = Arrivals()
        self.drafts = Drafts("s", [1] * n_tokens, {}, 0.0)

    def connect(self, *sources):
        self.arrivals.connect(sources, [self.drafts])

    def post(self, base, end, now, *, alive=True, source="a"):
        self.arrivals.on_draft(self.drafts, source, base, end, now, alive=alive)

    def commit(self, n_tokens, now, *, dead=()):
        """`dead`: sources whose drafts disagree."""
        for source in dead:
            self.drafts.trees[source] = tree = DraftTree(source, n_tokens, [1])
            tree.follow([2])
        self.drafts.extend(n_tokens, [], now)

    def expected(self, now, source="a"):
        return self.arrivals.expected(self.drafts, source, now)

    def is_drafting(self, now, patience=1.0):
        return self.arrivals.is_drafting(self.drafts, now, patience)


@pytest.fixture
def drafting():
    """A source that adds a token every 10 ms. The last token came at 0.05 s."""
    watching = Watching()
    for i in range(1, 6):
        watching.post(10, 10 + i, i / 100)
    return watching


@pytest.fixture
def answering():
    """A source whose drafts die every time. The last commit was at 1 s.

    A new draft of 2 tokens comes 20 ms after each commit.
    """
    watching = Watching()
    watching.post(10, 12, 0.005)
    for i in range(1, 21):
        watching.commit(10 + i, i / 20, dead=["a"])
        if i < 20:
            watching.post(10 + i, 12 + i, i / 20 + 0.02)
    return watching


# A draft that lives and grows


@pytest.mark.parametrize(
    ("source", "now", "first_in", "n_first"),
    [
        pytest.param("drafting", 0.05, 0.01, 1, id="a growing draft goes on at its pace"),
        pytest.param("drafting", 0.056, 0.004, 1, id="time that has passed is not waited for again"),
        pytest.param("answering", 1.0, 0.02, 2, id="an answer comes as long after a mismatch as usual"),
        pytest.param("answering", 1.015, 0.005, 2, id="or what is left of that"),
    ],
)
def test_the_next_tokens_are_expected(request, source, now, first_in, n_first):
    arrival = request.getfixturevalue(source).expected(now)
    assert (arrival.first_in, arrival.n_first) == (pytest.approx(first_in), n_first)


@pytest.mark.parametrize(("source", "now"), [("drafting", 0.2), ("answering", 1.5)])
def test_a_source_that_has_gone_quiet_is_not_waited_for(request, source, now):
    assert request.getfixturevalue(source).expected(now) is None


def test_an_overdue_answer_is_not_there_yet(answering):
    assert 0 < answering.expected(1.021).first_in < 0.01


def test_an_overdue_token_is_as_late_as_others_were_and_not_there_yet():
    watching = Watching()
    for i, now in enumerate([0.01, 0.03, 0.035, 0.06, 0.065, 0.09], start=1):
        watching.post(10, 10 + i, now)
    assert 0.005 < watching.expected(0.09 + 0.025).first_in < 0.015
    assert watching.expected(0.2) is None


def test_without_jitter_an_overdue_token_comes_soon_or_not_at_all():
    watching = Watching()
    for i in range(1, 40):
        watching.post(10, 10 + i, i / 100)
    assert 0 < watching.expected(0.401).first_in < 0.001
    assert watching.expected(0.403) is None


@pytest.mark.parametrize(
    ("posts", "per_token"),
    [
        pytest.param([(10 + 2 * i, i) for i in range(1, 6)], 0.005, id="two tokens at once share their time"),
        pytest.param([(11, 1), (12, 1), *[(11 + i, i) for i in range(2, 10)]], 0.01, id="two read together"),
    ],
)
def test_the_pace_is_that_of_the_last_tokens(posts, per_token):
    watching = Watching()
    for end, hundredths in posts:
        watching.post(10, end, hundredths / 100)
    assert watching.expected(posts[-1][1] / 100).per_token == pytest.approx(per_token)


def test_a_pause_is_not_taken_for_the_time_of_a_token(drafting):
    drafting.post(10, 16, 5.0)
    assert drafting.expected(5.0).per_token == pytest.approx(0.01, rel=0.01)


@pytest.mark.parametrize("first", [0.00005, 0.0])
def test_tokens_that_come_in_pairs_are_not_taken_for_quick_ones_with_pauses(first):
    """The network delivers two messages at once. The first sample may be of either message."""
    watching, now = Watching(100), 0.01
    watching.post(100, 101, now)
    for i in range(2, 61):
        now += first if i % 2 == 0 else 0.02
        watching.post(100, 100 + i, now)
    assert 0.004 < watching.expected(now).per_token < 0.02


def test_a_pause_after_every_few_tokens_is_still_one(drafting):
    end, now = 15, 0.05
    for _ in range(20):
        for gap in (1.0, 0.01, 0.01):
            end, now = end + 1, now + gap
            drafting.post(10, end, now)
    assert drafting.expected(now).per_token == pytest.approx(0.01, rel=0.01)


def test_a_source_that_became_slower_is_believed(drafting):
    for i in range(1, 8):
        drafting.post(10, 15 + i, 0.05 + i / 10)
    assert drafting.expected(0.75).per_token == pytest.approx(0.1, rel=0.1)


def test_a_first_draft_alone_gives_no_pace():
    watching = Watching()
    watching.post(10, 12, 0.01)
    assert watching.expected(0.011) is None


# A draft that died: the answer to the news


def test_a_quiet_source_stays_quiet_however_many_tokens_are_committed(answering):
    for i in range(1, 200):
        answering.commit(30 + i, 1.0 + i / 1000)
        if i > 100:
            assert answering.expected(1.0 + i / 1000) is None


def test_a_quiet_source_that_speaks_again_is_expected_again(answering):
    answering.commit(31, 9.0)
    answering.post(31, 33, 9.02)
    answering.commit(32, 9.05, dead=["a"])
    assert answering.expected(9.05) is not None


@pytest.mark.parametrize("early", [None, 0, 1], ids=["none", "a draft on older tokens", "one under way"])
def test_a_late_answer_is_expected_late_next_time_whatever_comes_of_what_was_under_way(early):
    """Measured from the newest commit, a draft under way when its text died would seem to come at once."""
    watching = Watching()
    watching.post(10, 13, 0.005)
    for i in range(1, 30):
        n = 10 + 2 * i
        if early:
            watching.commit(n - 1, i - 0.5)
        watching.commit(n, float(i), dead=["a"])
        if early is not None:
            watching.post(n - 1, n + 1, i + 0.001, alive=False)
        watching.post(n, n + 3, i + 0.3)
    watching.commit(80, 30.0, dead=["a"])
    assert watching.expected(30.0).first_in == pytest.approx(0.3)


def test_a_source_never_heard_of_is_not_expected():
    watching = Watching()
    watching.connect("a")
    assert watching.expected(0.0) is None
    assert watching.drafts.by_source == {}


def test_a_source_cannot_keep_the_lead_waiting_by_repeating_a_draft(drafting):
    """It alternates between old and new bases: the draft lives, but does not grow."""
    drafting.commit(11, 0.051)
    for i in range(1, 500):
        drafting.post(10 + i % 2, 14 + i % 2, 0.051 + i / 100)
    assert drafting.expected(5.05) is None
    assert not drafting.is_drafting(5.05)


def test_a_draft_that_was_overtaken_does_not_count_as_activity(drafting):
    drafting.commit(11, 0.051)
    drafting.post(11, 16, 0.06)
    drafting.post(10, 30, 0.3)
    assert drafting.expected(0.3) is None


def test_a_draft_on_newer_text_counts_as_activity(drafting):
    drafting.commit(12, 3.0)
    drafting.post(12, 14, 3.01)
    assert drafting.expected(3.01) is not None


# Patience, for the policy that waits for all


def test_a_sequence_is_waited_for_from_its_beginning_until_patience_ends():
    watching = Watching()
    watching.connect("a")
    assert watching.is_drafting(0.9)
    assert not watching.is_drafting(1.1)


def test_a_source_that_never_drafted_is_not_waited_for_again_later():
    watching = Watching()
    watching.connect("a")
    for i in range(1, 500):
        watching.commit(10 + i, i / 100)
    assert not watching.is_drafting(5.0)


@pytest.mark.parametrize(("source", "last_heard"), [("drafting", 0.05), ("answering", 1.0)])
def test_a_source_that_was_heard_of_is_drafting_until_patience_ends(request, source, last_heard):
    watching = request.getfixturevalue(source)
    assert watching.is_drafting(last_heard + 0.99)
    assert not watching.is_drafting(last_heard + 1.01)


def test_a_source_that_is_behind_is_waited_for_since_the_first_commit_it_has_not_seen(answering):
    for i in range(1, 200):
        answering.commit(30 + i, 1.0 + i / 100)
    assert not answering.is_drafting(3.0)


# Coming and going


def test_a_source_that_has_disconnected_is_forgotten(drafting):
    drafting.connect("a", "b")
    drafting.connect("b")
    assert drafting.arrivals.known == ["b"]
    assert drafting.expected(0.05) is None
    assert not drafting.is_drafting(9.0)


def test_the_removal_of_a_draft_whose_source_has_disconnected_is_ignored(drafting):
    drafting.connect()
    drafting.commit(11, 0.06, dead=["a"])
    assert drafting.arrivals.known == []


def test_the_report_is_in_milliseconds(answering):
    for i in range(4):
        answering.post(30, 32 + i, 1.02 + i / 100)
    answering.arrivals.on_parts("a", 0.003, 0.012)
    assert answering.arrivals.describe("a") == {
        "first_draft_ms": 20.0,
        "waited_ms": 3.0,
        "drafted_ms": 12.0,
        "token_ms": 10.0,
    }
    assert set(answering.arrivals.describe("stranger").values()) == {None}


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((0.003, 0.012), ": 3.0 ms waiting, 12.0 ms drafting, 5.0 ms on the way"),
        ((0.013, 0.728), ""),
        ((), ""),
    ],
)
def test_the_log_says_how_long_the_way_to_a_back_that_leaves_was(answering, caplog, parts, words):
    caplog.set_level("INFO")
    if parts:
        answering.arrivals.on_parts("a", *parts)
    answering.connect()
    assert caplog.messages == [f"back a sent its first new token 20.0 ms after a correction{words}"]
