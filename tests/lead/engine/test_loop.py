"""The loop: commands in, plan, decode, commit, events out."""

import pytest

from lead.engine.loop import Loop
from lead.engine.messages import Cancel, Committed, DraftsDropped, Finished, Load, PostDraft, Started
from shared.errors import DecodeFatalError, KvCacheFullError
from tests.fakes import FakeFront, FakeTarget, make_limits, make_scheduler, plain_run, run_engine, submit

LIMITS = make_limits()


class ScriptedPipe:
    """Hands out one batch of commands per step, then is closed."""

    def __init__(self, *batches):
        self._batches = list(batches)
        self.waits = []
        self.sent = []

    @property
    def open(self):
        return bool(self._batches)

    def drain(self, wait):
        self.waits.append(wait)
        return self._batches.pop(0)

    def send(self, event):
        self.sent.append(event)


def run(*batches, target=None):
    pipe, target = ScriptedPipe(*batches), target or FakeTarget(LIMITS.n_slots)
    Loop(target, make_scheduler(LIMITS), pipe).run()
    return pipe, target


def test_without_work_it_waits_for_commands():
    pipe, target = run([], [])
    assert pipe.waits == [None, None]
    assert target.steps == []


def test_with_work_it_only_looks_for_commands():
    pipe, _ = run([submit(max_tokens=9)], [], [])
    assert pipe.waits == [None, 0.0, 0.0]


def test_a_request_is_decoded_in_the_step_it_arrives_in():
    pipe, target = run([submit(tokens=[1, 2, 4])])
    assert target.steps == [[3]]
    assert [event.type for event in pipe.sent] == ["started", "committed"]


def test_a_sequence_is_started_before_its_first_decode():
    class Dying(FakeTarget):
        def decode(self, _spans):
            raise DecodeFatalError("gone")

    pipe = ScriptedPipe([submit()])
    with pytest.raises(DecodeFatalError):
        Loop(Dying(2), make_scheduler(LIMITS), pipe).run()
    assert pipe.sent == [Started(sequence="s", n_cached=0)]


def test_a_cancelled_sequence_is_not_decoded_any_more():
    _, target = run([submit(max_tokens=9)], [Cancel(sequence="s")], [])
    assert len(target.steps) == 1


def test_a_draft_is_verified_in_the_step_it_arrives_in():
    request = submit(max_tokens=9)
    text, _ = plain_run(request, 100)
    draft = PostDraft(sequence="s", source="a", base=3, tokens=text[3:5])
    pipe, target = run([request], [draft])
    assert target.steps == [[2], [3]]
    assert pipe.sent[-1] == Committed(
        sequence="s", start=3, tokens=text[3:6], n_accepted=2, sources=["a"] * 2
    )


def test_stale_drafts_are_reported():
    draft = PostDraft(sequence="s", source="a", base=77, tokens=[1])
    pipe, _ = run([submit(max_tokens=9)], [draft, draft])
    assert pipe.sent[-1] == DraftsDropped(source="a", n_stale=2)


def test_a_running_engine_cannot_load_another_model():
    load = Load(model="m", n_ctx=0, n_slots=1, n_batch=1, n_threads=1, n_gpu_layers=0, depth=0)
    with pytest.raises(AssertionError, match="not a command"):
        run([load])


class Full(FakeTarget):
    """Has room for so few tokens only, whatever the scheduler was told."""

    def __init__(self, *args, n_real, **kwargs):
        super().__init__(*args, **kwargs)
        self._n_real = n_real

    def decode(self, spans):
        if sum(map(len, self.slots)) + sum(len(span.tokens) for span in spans) > self._n_real:
            raise KvCacheFullError("no room")
        return super().decode(spans)


def run_full(n_real, script):
    front = FakeFront(script)
    run_engine(front, LIMITS, make_target=lambda *args, **more: Full(*args, n_real=n_real, **more))
    return front


def test_a_cache_smaller_than_promised_ends_only_the_text_that_is_too_long_for_it():
    long, short = submit("long", [1, 4]), submit("short", [5], max_tokens=9)
    text, _ = plain_run(long, 100)
    assert len(text) > 40
    front = run_full(40, {0: [long, short]})
    assert front.reasons == {"long": "length", "short": plain_run(short, 100)[1]}
    assert front.texts == {"long": text[:41], "short": plain_run(short, 100)[0]}


def test_sequences_that_fit_one_after_the_other_all_get_their_whole_text():
    requests = [submit(f"s{i}", [i, 6] * 6, max_tokens=12) for i in range(5)]
    front = run_full(26, {0: requests})
    assert front.texts == {request.sequence: plain_run(request, 100)[0] for request in requests}
    assert len(front.of(Started)) == len(front.of(Finished)) == 5
