import json

import numpy as np
import pytest

from lead.engine.commands import NGRAM
from lead.engine.drafters.draft_source import InlineDraft, LookupDrafter
from lead.engine.sequence import Verification
from lead.engine.slot import Slot
from lead.engine.speculation.drafts import DraftToken
from lead.engine.speculation.manager import SpeculationManager
from lead.engine.speculation.policy import DraftOrder, Verify, Wait
from lead.engine.speculation.speculation_stats import StepReport
from shared.exact.batch_invariance import InvariantSizes
from shared.protocol import Draft
from shared.slot_cache import SlotCache
from tests.toy_engine import engine_sequence, submit

END = 99
NO_LOGITS = np.empty(0, np.float32)
PROMPT = (10, 11, 12)


class Scripted(LookupDrafter):
    """A local drafter that proposes the tokens that a test sets."""

    def __init__(self, tokens=(), confidence=0.9):
        self.tokens, self.confidence = tokens, confidence
        self.asked = []
        self.closed = []

    def draft(self, tokens, max_tokens):
        self.asked.append((list(tokens), max_tokens))
        return list(self.tokens), [self.confidence] * len(self.tokens)

    def close(self, tokens):
        self.closed.append(list(tokens))


class Table:
    """One sequence, its statistics, and a table of T(n)."""

    def __init__(self, policy="adaptive", depth=4, local=None, table=None, *, inline=None, batch_sizes=None):
        self.speculation = SpeculationManager(
            policy, depth, frozenset({END}), lambda _: local or {}, inline=inline, batch_sizes=batch_sizes
        )
        for n in range(1, 12):
            self.speculation.cost.learn(n, 0.05 * (table or {}).get(n, 1.0))
        self.now = 0.0  # when the last step ended
        self.sequence = engine_sequence("s", PROMPT)
        self.tokens = self.sequence.tokens
        self.speculation.open(self.sequence, 0.0)
        self.connect("a", "b")

    def connect(self, *backs):
        self.speculation.connect(backs, [self.sequence])

    def post(self, tokens, base=None, *, now=0.0, source="a", parents=None, confidences=None):
        base = len(self.tokens) if base is None else base
        draft = Draft(
            sequence="s",
            source=source,
            base=base,
            tokens=tokens,
            parents=parents,
            confidences=confidences,
            received_at=now,
        )
        self.speculation.post_draft(self.sequence, draft)

    def decide(self, now=0.0, n_useful=50, n_prompt=0):
        cache = SlotCache(0)
        cache.add(self.tokens[:-1])
        self.sequence.request = submit("s", PROMPT, n_draft=n_useful)
        return self.speculation.plan([Slot(cache, self.sequence)], n_prompt, now)

    def wait_at(self, now=0.0, **more):
        """Return the seconds to wait; 0 if it does not wait."""
        decision = self.decide(now, **more)
        return decision.seconds if isinstance(decision, Wait) else 0

    def order(self):
        """Return the order; None if nothing is drafted in the engine."""
        decision = self.decide()
        return decision if isinstance(decision, DraftOrder) else None

    def tokens_at(self, now=0.0, **more):
        return tuple(each.token for each in self.decide(now, **more).drafts[0])

    def commit(self, *tokens, **more):
        return self.speculation.count(self.commit_uncounted(*tokens, **more))

    def commit_uncounted(self, *tokens, now=0.0, n_accepted=0, rejected=()):
        start = len(self.tokens)
        self.tokens += tokens
        draft = [DraftToken(token, "a", None) for token in (*tokens[:n_accepted], *rejected)]
        step = Verification(self.sequence.drafts, start, draft, NO_LOGITS, list(tokens), n_accepted)
        self.speculation.on_commit(step, now)
        return step

    def scored(self, source="a"):
        report = self.speculation.forecast.describe(source)
        return report["n_right"], report["n_scored"]


def answering(table, source="a", n=8, after=0.004):
    """Reject the draft n times. Each time a new draft arrives `after` seconds after the commit."""
    for i in range(n):
        table.post([7], now=i + after, source=source)
        table.commit(8, now=i + 1.0)
    return n


# Choices


def test_off_proposes_nothing_and_asks_no_drafter():
    own = Scripted([1, 2])
    table = Table("off", local={"ngram": own}, inline=ScriptedInline(1, 2))
    table.post([1, 2])
    assert table.decide() == Verify([()])
    assert own.asked == []


def test_a_source_that_was_always_wrong_is_not_taken_any_more():
    table = Table(table={1: 1.0, **{n: 1.2 + n / 10 for n in range(2, 12)}})
    table.post([7], confidences=[0.9])
    assert table.tokens_at() == (7,)
    for _ in range(40):
        table.commit(8)
        table.post([7], confidences=[0.9])
    assert table.tokens_at() == ()


def test_a_source_that_gets_better_is_noticed_though_it_was_not_taken():
    table = Table(table={1: 1.0, **{n: 1.2 + n / 10 for n in range(2, 12)}})
    for _ in range(60):
        table.post([7])
        table.commit(8)
    assert table.tokens_at() == ()
    for _ in range(40):
        table.post([7])
        assert table.speculation.forecast.mean("a") < 1
        table.commit(7)
    table.post([7])
    assert table.tokens_at() == (7,)


@pytest.mark.parametrize("policy", ["adaptive", "fixed", "sync"])
def test_no_token_is_taken_that_could_not_be_committed(policy):
    table = Table(policy)
    table.post([1, 2, 3, 4], confidences=[0.9] * 4)
    assert table.tokens_at(n_useful=2) == (1, 2)


def test_of_two_sources_the_better_one_is_followed():
    table = Table("fixed")
    for _ in range(40):
        table.post([1, 5])
        table.post([2, 6], source="b")
        table.commit(2)
    table.post([1, 5, 5, 5])
    table.post([2, 6], source="b")
    assert table.tokens_at() == (2, 6)


def test_the_policy_can_be_changed_while_there_are_drafts():
    table = Table("off")
    table.post([1, 2, 3])
    table.speculation.set_policy("fixed", 2)
    assert table.tokens_at() == (1, 2)


# Learning from commits


def test_what_backs_had_right_is_said_with_what_is_committed():
    table = Table(local={"ngram": Scripted([1, 2])})
    table.tokens_at()
    table.post([1, 2, 3], now=0.1)
    table.post([1, 9], now=0.1, source="b")
    assert table.commit(1, 2, now=0.2).n_right == {"a": (2, 0), "b": (1, 0)}
    assert table.commit(4, now=0.3).n_right == {}


def test_a_draft_that_came_while_its_tokens_were_decoded_is_in_time_and_one_after_them_is_late():
    table = Table()
    table.commit(1, 2, now=0.2)
    table.post([1, 2, 3], base=3, now=0.19)
    table.post([1, 2, 3], base=3, now=0.21, source="b")
    assert table.commit(7, now=0.3).n_right == {"a": (2, 0), "b": (0, 2)}


def test_a_commit_may_be_counted_when_the_next_step_has_begun():
    """A draft or another commit that comes until then changes nothing."""
    table = Table()
    table.post([1, 2, 3], now=0.1)
    steps = [table.commit_uncounted(1, 9, now=0.2, n_accepted=1, rejected=[2])]
    table.post([1, 9], base=3, now=0.3)
    table.post([8], now=0.3, source="b")
    steps.append(table.commit_uncounted(8, now=0.4))
    counted = [table.speculation.count(step).n_right for step in steps]
    assert counted == [{"a": (1, 0), "b": (1, 0)}, {}]
    assert (table.scored("a"), table.scored("b")) == ((1, 2), (1, 1))
    assert table.speculation.stats.n_recovered == 1


@pytest.mark.parametrize(
    "drafts",
    [
        pytest.param([{"tokens": [1, 2, 9, 8], "parents": [-1, 0, -1, 2]}], id="in a side branch"),
        pytest.param([{"tokens": [1, 2]}, {"tokens": [9, 8], "source": "b"}], id="of another source"),
    ],
)
def test_a_recovered_token_is_covered_if_a_draft_goes_on_from_it(drafts):
    table = Table()
    for draft in drafts:
        table.post(**draft)
    table.commit(9, rejected=[1, 2])
    assert (table.speculation.stats.n_recovered, table.speculation.stats.n_covered) == (1, 1)
    assert table.tokens_at() == (8,)


def test_lookup_drafters_do_not_cover_a_recovered_token():
    table = Table(local={"ngram": Scripted([9, 8])})
    table.tokens_at()
    table.commit(9, rejected=[1])
    assert (table.speculation.stats.n_recovered, table.speculation.stats.n_covered) == (1, 0)


# Local drafters


def test_a_lookup_drafter_is_asked_with_all_tokens_at_each_plan():
    own = Scripted()
    table = Table(local={"ngram": own})
    table.tokens_at()
    table.commit(7)
    table.tokens_at()
    assert [tokens for tokens, _ in own.asked] == [[10, 11, 12], [10, 11, 12, 7]]


def test_if_a_lookup_drafter_proposes_nothing_its_older_draft_stays():
    own = Scripted([1, 2, 3])
    table = Table(local={"ngram": own})
    table.tokens_at()
    table.commit(1)
    own.tokens = ()
    assert table.tokens_at() == (2, 3)


def test_a_lookup_drafter_is_told_that_its_sequence_has_ended_and_how():
    own = Scripted()
    table = Table(local={"ngram": own})
    table.commit(7)
    table.speculation.close(table.sequence)
    assert own.closed == [[*PROMPT, 7]]


def test_sync_asks_no_lookup_drafter():
    own = Scripted([1, 2])
    assert Table("sync", local={"ngram": own}).wait_at() > 0
    assert own.asked == []


def test_each_sequence_has_lookup_drafters_of_its_own():
    made = []

    def make(request):
        made.append(request.sequence)
        return {"ngram": Scripted()}

    speculation = SpeculationManager("adaptive", 4, frozenset(), make)
    for name in ("s", "t"):
        speculation.open(engine_sequence(name), 0.0)
    assert made == ["s", "t"]


# Waiting


@pytest.fixture
def right_by_now():
    """A table whose source answers quickly and was wrong at first; and the time."""
    table = Table()
    now = float(answering(table))
    for _ in range(40):
        table.post([8], now=now + 0.004)
        now += 1.0
        table.commit(8, 5, now=now)
    return table, now


def test_a_source_that_answers_quickly_is_waited_for_after_a_mismatch(right_by_now):
    table, now = right_by_now
    assert table.wait_at(now) == pytest.approx(0.004, rel=0.1)


def test_a_wait_in_vain_ends(right_by_now):
    table, now = right_by_now
    waited = 0.0
    while wait := table.wait_at(now + waited):
        waited += wait
    assert 0.004 < waited < 0.02


def growing(table, n=4, **more):
    """Let a source add a token every millisecond, with high confidence."""
    for i in range(1, n + 1):
        table.post(list(range(1, i + 1)), now=i / 1000, confidences=[0.95] * i, **more)
    return n / 1000


@pytest.mark.parametrize(
    ("tuning", "waits"),
    [({}, True), ({"n_ahead": 4}, False), ({"min_confidence": 0.9}, False)],
    ids=["it is", "it has reached its length", "it has become too doubtful"],
)
def test_a_draft_that_grows_quickly_is_waited_for_unless(monkeypatch, tuning, waits):
    table = Table()
    for name, value in tuning.items():
        monkeypatch.setattr(table.speculation.tuning, name, value)
    assert (table.wait_at(growing(table)) > 0) == waits


def test_a_draft_that_ends_the_text_is_not_waited_for():
    table = Table()
    table.post([1, 2], now=0.001, confidences=[0.95] * 2)
    table.post([1, 2, END], now=0.002, confidences=[0.95] * 3)
    assert table.wait_at(0.002) == 0


def test_sync_does_not_wait_after_an_end_token():
    table = Table("sync", 3)
    table.post([1, END], now=0.1)
    assert table.wait_at(0.1) == 0


# Coming and going


def test_a_source_that_left_is_forgotten():
    table = Table()
    now = float(answering(table))
    table.connect("b")
    assert table.wait_at(now) == 0
    assert table.speculation.describe()["sources"].keys() == {"b"}
    assert table.speculation.forecast.probability("a", 0.9, "single") == 0.9


def test_the_drafts_of_a_source_that_left_may_still_be_right():
    table = Table()
    table.post([1, 2], confidences=[0.9] * 2)
    table.connect("b")
    assert table.tokens_at() == (1, 2)


def test_a_source_that_left_is_forgotten_although_its_draft_is_still_there():
    table = Table()
    table.post([1, 2])
    table.connect("b")
    table.commit(1)
    table.connect("b", "c")
    assert table.speculation.describe()["sources"].keys() == {"b", "c"}


def test_lookup_drafters_are_not_forgotten_when_backs_come_and_go():
    table = Table(local={"ngram": Scripted([1])})
    table.tokens_at()
    table.commit(1)
    table.connect()
    table.speculation.close(table.sequence)
    table.connect("a")
    assert table.scored("ngram") == (1, 1)


# Policies


def step(table, *, n_tokens=5, seconds=0.1, depth=4, n_committed=2, n_expected=4.0):
    table.speculation.on_step(StepReport(n_tokens, seconds, [depth], n_committed, n_expected))
    return table.speculation.describe()


def test_a_new_policy_keeps_what_was_learned():
    table = Table("off")
    table.post([1])
    table.commit(1)
    step(table, n_tokens=1, seconds=0.05, depth=0, n_committed=1)
    table.speculation.set_policy("adaptive", 2)
    report = table.speculation.describe()
    assert (report["policy"], report["depth"], report["n_steps"]) == ("adaptive", 2, 1)
    assert report["step_ms"]["1"] == pytest.approx(50.0)
    assert table.scored() == (1, 1)


def test_what_the_adaptive_policy_has_learned_outlives_another_policy():
    table = Table()
    before = table.speculation._policy
    table.speculation.set_policy("sync", 2)
    table.speculation.set_policy("adaptive", 4)
    assert table.speculation._policy is before


# What was expected and what came


def test_steps_with_prompts_are_not_predicted():
    report = step(Table(), n_tokens=64, seconds=1.0, n_expected=None)
    assert (report["n_steps"], report["step_seconds"]) == (1, 1.0)
    assert report["actual_tokens_per_second"] is None


def test_a_prediction_is_made_before_its_step_is_known():
    table = Table("fixed", table={5: 2.0})
    report = step(table, seconds=0.2)
    assert report["predicted_tokens_per_second"] == pytest.approx(40.0)
    assert report["actual_tokens_per_second"] == pytest.approx(10.0)


def test_the_wait_before_a_step_counts_for_it_once():
    table = Table("sync", table={5: 2.0})
    table.speculation.on_wait(0.06)
    table.speculation.on_wait(0.04)
    step(table, n_committed=3, n_expected=3.0)
    report = step(table, n_committed=3, n_expected=3.0)
    assert report["wait_seconds"] == pytest.approx(0.1)
    assert report["actual_tokens_per_second"] == pytest.approx(6 / 0.3)
    assert report["predicted_tokens_per_second"] == pytest.approx(6 / 0.3)


def test_the_wait_before_a_step_counts_for_what_backs_are_asked_to_draft():
    table = Table("sync")
    noted = []
    table.speculation.tuning.note_step = lambda *each: noted.append(each)
    table.speculation.on_wait(0.06)
    step(table, seconds=0.1, depth=2, n_committed=3)
    assert noted == [([2], 3, pytest.approx(0.16))]


def test_steps_that_took_no_time_are_counted():
    table = Table()
    for _ in range(64):
        report = step(table, n_tokens=1, seconds=0.0, depth=0, n_committed=1, n_expected=1.0)
    assert json.loads(json.dumps(report, allow_nan=False)) == report


# Drafting in the engine


class ScriptedInline:
    """Drafts the tokens that a test sets, one in each round."""

    source, n_max = "draft_model", 8

    def __init__(self, *tokens, confidence=0.9):
        self.tokens, self.confidence = tokens, confidence

    def open(self, _sequence, _sampling, tokens):
        return ScriptedDraft(self, tokens)

    def on_round(self, *_):
        return True

    def draft(self, drafts, _n_max):
        grown = [each for each in drafts if each.n_pending]
        for each in grown:
            each.n_drafted += 1
        return len(drafts), grown


class ScriptedDraft(InlineDraft):
    def __init__(self, drafter, text):
        self._drafter, self._text = drafter, text
        self._n_seen = self.n_drafted = 0

    @property
    def n_pending(self):
        if self._n_seen != len(self._text):
            self._n_seen, self.n_drafted = len(self._text), 0
        return 1 if self.n_drafted < len(self._drafter.tokens) else None

    @property
    def continuation(self):
        n = self.n_drafted
        return list(self._drafter.tokens[:n]), [self._drafter.confidence] * n

    def leave(self):
        pass


def with_draft_model(*tokens, price=0.0005, policy="adaptive", **more):
    table = Table(policy, inline=ScriptedInline(*tokens, **more))
    for n in range(1, 9):
        table.speculation.inline.cost.learn(n, price)
    return table


def drafted(table, seconds=0.0005):
    """Return the verified draft after everything that was ordered has been drafted."""
    while order := table.order():
        while order:
            done = table.speculation.draft(order)
            table.speculation.on_drafted(done, seconds)
            order = done.rest
    return table.decide().drafts[0]


def test_what_was_drafted_in_the_engine_is_verified():
    chain = drafted(with_draft_model(1, 2, 3))
    assert [(each.token, each.source) for each in chain] == [(n, "draft_model") for n in (1, 2, 3)]


def test_an_order_may_be_done_in_several_rounds():
    table = with_draft_model(1, 2, 3)
    order = table.order()
    assert order.n_rounds > 1
    done = table.speculation.draft(order)
    assert (done.n_tokens, done.n_drafted) == (1, 1)
    assert done.rest.n_rounds == order.n_rounds - 1


def test_a_drafter_catches_up_at_once_unless_prompts_wait():
    assert with_draft_model(1).decide().at_once
    assert not with_draft_model(1).decide(n_prompt=1).at_once


def test_a_draft_that_becomes_doubtful_ends_the_order():
    table = with_draft_model(1, 2, 3, confidence=0.001)
    done = table.speculation.draft(table.order())
    assert done.rest is None


def test_drafting_counts_as_time_of_the_step():
    table = with_draft_model(1, 2, price=0.004)
    drafted(table, seconds=0.004)
    table.commit(1, 2, 3, n_accepted=2)
    table.speculation.on_step(StepReport(3, 0.05, [2], 3, 3.0))
    report = table.speculation.describe()
    assert report["draft_seconds"] == pytest.approx(0.008)
    assert report["actual_tokens_per_second"] == pytest.approx(3 / 0.058, rel=0.01)
    assert report["draft_model"]["n_tokens"] == 2


def always_wrong(n_steps):
    """A table after these steps, and the number of tokens drafted for each step."""
    table, n_drafted = with_draft_model(7, 7, 7, price=0.005), []
    for _ in range(n_steps):
        n_drafted.append(len(drafted(table, 0.005)))
        table.commit(8)
        table.speculation.on_step(StepReport(1, 0.05, [0], 1, 1.0))
    return table, n_drafted


def test_a_draft_model_that_is_always_wrong_is_soon_not_asked_any_more():
    _, n_drafted = always_wrong(200)
    assert n_drafted[0] > 0
    assert sum(n_drafted) < 80
    assert sum(n_drafted[150:]) <= 5


def test_it_is_tried_again_from_time_to_time():
    table, _ = always_wrong(1000)
    assert table.scored("draft_model")[1] > 5
    assert table.speculation.describe()["draft_seconds"] < 0.015 * 1000 * 0.05


def test_what_a_back_has_pushed_is_not_drafted_again():
    table = with_draft_model(1, 2, 3, price=0.02)
    table.post([1, 2, 3, 4, 5, 6], confidences=[0.95] * 6)
    assert table.order() is None


@pytest.mark.parametrize(("depth", "verified"), [(1, (1,)), (2, (1, 2, 3))])
def test_what_would_be_padding_is_filled_with_more_of_the_draft(depth, verified):
    table = Table("fixed", depth=depth, batch_sizes=InvariantSizes((2, 4), (2, 4)))
    table.post([1, 2, 3, 4])
    assert table.tokens_at() == verified


def test_without_a_draft_it_is_filled_with_what_followed_before():
    table = Table(local={NGRAM: Scripted()}, batch_sizes=InvariantSizes((3,), (3,)))
    table.tokens += [10]
    (draft,) = table.decide().drafts
    assert draft == [DraftToken(11, NGRAM, None), DraftToken(12, NGRAM, None)]
    assert table.tokens_at(n_useful=1) == (11,)


def test_without_ngrams_nothing_is_guessed():
    table = Table(batch_sizes=InvariantSizes((3,), (3,)))
    table.tokens += [10]
    assert table.tokens_at() == ()


# Pauses


def plain_step(table, own=0.0):
    """A step without drafts. `own`: the engine's own time before it."""
    table.now += own + 0.05
    table.speculation.on_step(StepReport(1, 0.05, [0], 1, 1.0, ended_at=table.now))


def losing(table):
    """A table whose engine took longer for its plans than they were worth."""
    while not table.speculation.guard.is_pausing:
        plain_step(table, own=0.01)
    return table


def test_backs_are_told_that_nothing_is_planned_in_a_pause_and_that_it_has_ended():
    table = losing(Table())
    table.decide()
    assert table.speculation.pop_events()[-1].n_ahead == 0
    table.speculation.guard.resume()
    table.decide()
    plain_step(table)
    assert table.speculation.pop_events()[-1].n_ahead > 0


@pytest.mark.parametrize(
    ("change", "ends"),
    [
        (lambda table: table.connect("a", "b", "c"), True),
        (lambda table: table.connect("a"), False),
        (lambda table: table.speculation.set_policy("adaptive", 4), True),
        (lambda table: table.speculation.cost.learn_table({1: 0.05, 2: 0.05}), True),
    ],
    ids=["a back joins", "a back leaves", "a policy is chosen", "T(n) is new"],
)
def test_a_pause_ends_at_once_when_something_new_may_gain(change, ends):
    table = losing(Table())
    table.post([1, 2], confidences=[0.9] * 2)
    assert table.tokens_at() == ()
    change(table)
    assert table.tokens_at() == ((1, 2) if ends else ())


@pytest.mark.parametrize(("is_right", "planned"), [(True, True), (False, False)])
def test_a_pause_ends_when_lookups_begin_to_be_right(is_right, planned):
    own = Scripted(range(100, 130))
    table = losing(Table(local={"ngram": own}))
    n_left = table.speculation.guard.n_left
    for token in range(100, 118):
        table.decide()
        own.tokens = range(token + 1, 130)
        table.commit(token if is_right else 7)
        plain_step(table)
    assert len(own.asked) > 0
    assert (table.speculation.guard.n_left < n_left - 18) == planned
    assert planned or len(own.asked) == 3, "in a pause they are asked now and then"


def test_other_policies_never_pause():
    table = Table("fixed")
    for _ in range(100):
        plain_step(table, own=0.05)
    table.post([1, 2])
    assert table.tokens_at() == (1, 2)
