"""The engine: the running sequences, the tokens of a step, and the meaning of the step's logits.

The tests that follow one sequence use prompts whose continuations are known to be long, see LONG.
"""

import random

import numpy as np
import pytest

from lead.engine.commands import SetBacks
from lead.engine.events import Committed, Failed, Finished, Started
from shared.cache_edits import Restore, Snapshot, Store
from shared.errors import PendingAnswerError, RequestError, UnavailableError
from shared.exact.batch_invariance import InvariantSizes
from shared.llama.memory_traits import MemoryTraits
from shared.llama.span import Span
from shared.protocol import Draft
from shared.sampling.parameters import SamplingParameters
from shared.text_store import PromptCacheSize
from tests.engine_harness import NOW, STEP_SECONDS, EngineHarness
from tests.toy_engine import make_engine, make_limits, submit
from tests.toy_model import N_VOCAB, ToyGrammar, plain_run, toy_sampler

LONG = (0, 2)
"""A prompt whose greedy continuation fills a context of 100 tokens."""
OTHER = (9, 4)
STATE = MemoryTraits(n_rollback=0)
STORED = [(7 * i) % 18 for i in range(60)]
"""Long enough for the prompt cache."""
TEXT, _ = plain_run(submit(tokens=LONG), 100)
SHORT, _ = plain_run(submit(tokens=[0, 1]), 100)
"""A text that ends with an end token."""


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


def text_of(events, sequence="s"):
    return [token for step in of(Committed, events) if step.sequence == sequence for token in step.tokens]


def names(events, kind=Started):
    return [event.sequence for event in of(kind, events)]


# Limits


@pytest.mark.parametrize(
    ("limits", "complaint"),
    [
        ({"n_slots": 3, "n_batch": 2}, "one token of every slot"),
        ({"n_ctx": 98, "n_ctx_sequence": 100}, "one whole sequence"),
    ],
)
def test_there_is_room_for_every_slot_and_for_one_whole_sequence(limits, complaint):
    with pytest.raises(ValueError, match=complaint):
        make_engine(make_limits(**limits))


@pytest.mark.parametrize("n_prompt", [0, 100])
def test_a_prompt_that_leaves_no_room_for_a_token_is_a_bug_of_the_front(n_prompt):
    with pytest.raises(AssertionError):
        EngineHarness().submit(tokens=[1] * n_prompt)


# One sequence


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "reason"),
    [
        pytest.param(LONG, None, "length", id="the context is full"),
        pytest.param(LONG, 5, "length", id="its token limit"),
        pytest.param((0, 1), None, "stop", id="an end token"),
        pytest.param((0, 1), len(SHORT) - 2, "stop", id="an end token at its limit"),
    ],
)
def test_a_sequence_ends_with(prompt, max_tokens, reason):
    text, _ = plain_run(submit(tokens=prompt, max_tokens=max_tokens), 100)
    harness = EngineHarness()
    harness.submit(tokens=prompt, max_tokens=max_tokens)
    events = harness.drain()
    assert [*prompt, *text_of(events)] == text
    assert events[-1] == Finished(sequence="s", reason=reason)


def test_a_prompt_longer_than_a_batch_is_read_in_several_steps():
    harness = EngineHarness(n_batch=8)
    harness.submit(tokens=[4] * 19)
    assert [harness.step() for _ in range(2)] == [[Started(sequence="s", n_cached=0)], []]
    assert harness.spans == [Span(0, 8, [4] * 8, 0, is_prompt=True)]
    (step,) = harness.step()
    assert harness.spans == [Span(0, 16, [4] * 3, 1, is_prompt=True)]
    assert step.start == 19


# Drafts


def drafting(*, depth=4, max_tokens=None, prompt=LONG, policy="fixed", sources=(), **limits):
    """A harness whose only sequence has its first token."""
    harness = EngineHarness(depth, policy, **limits)
    harness.apply(SetBacks(names=sources))
    harness.submit(tokens=prompt, max_tokens=max_tokens)
    harness.step()
    return harness


def post(harness, tokens, base=3, sequence="s", source="a", *, parents=None):
    draft = Draft(
        sequence=sequence, source=source, base=base, tokens=tokens, parents=parents, received_at=NOW
    )
    harness.apply(draft)


def test_a_wrong_draft_is_cut_off_where_it_is_wrong():
    harness = drafting()
    wrong = (TEXT[4] + 1) % N_VOCAB
    post(harness, [TEXT[3], wrong, 8])
    (step,) = harness.step()
    assert step == Committed(
        sequence="s",
        start=3,
        tokens=TEXT[3:5],
        n_accepted=1,
        rejected=[wrong, 8],
        sources=["a"] * 3,
        n_right={"a": (1, 0)},
    )
    harness.next()
    assert harness.edits == [(0, 4)]


def test_no_draft_token_is_decoded_that_could_not_be_committed():
    harness = drafting(max_tokens=4, depth=9)
    post(harness, TEXT[3:12])
    events = harness.step()
    assert harness.spans == [Span(0, 2, TEXT[2:5], 3)]
    assert events[-1] == Finished(sequence="s", reason="length")


def test_drafts_share_what_the_batch_has_left():
    harness = EngineHarness(depth=9, n_batch=6)
    harness.submit("s", LONG)
    harness.submit("t", LONG)
    harness.step()
    post(harness, TEXT[3:9], sequence="s")
    post(harness, TEXT[3:9], sequence="t")
    harness.step()
    assert [len(span.tokens) for span in harness.spans] == [5, 1]


def test_drafts_go_no_further_than_free_cells():
    harness = EngineHarness(depth=9, n_ctx=60, n_ctx_sequence=60, n_batch=60)
    harness.submit("s", TEXT[:30])
    harness.submit("t", [4] * 25)
    harness.step()  # 55 cells are taken, two more are needed
    post(harness, TEXT[31:40], base=31)
    harness.step()
    assert [len(span.tokens) for span in harness.spans] == [4, 1]


def test_a_draft_may_arrive_before_its_sequence_has_a_slot():
    harness = EngineHarness(n_slots=1, n_batch=8)
    harness.submit("first", [4], max_tokens=1)
    harness.submit("s", LONG)
    harness.step()
    post(harness, TEXT[2:6], base=2)
    assert text_of(harness.step()) == TEXT[2:3]  # where it starts, the prompt comes first
    assert text_of(harness.step()) == TEXT[3:7]


def test_a_model_that_cannot_trim_verifies_no_drafts():
    harness = drafting(traits=MemoryTraits(n_rollback=0))
    post(harness, TEXT[3:6])
    harness.step()
    assert harness.spans == [Span(0, 2, TEXT[2:3], 1)]


# Waiting for drafts, and what backs are told


def test_a_plan_that_waits_has_nothing_to_decode_and_changes_nothing():
    harness = drafting(policy="sync", sources=["a"])
    for _ in range(3):
        assert harness.waits
        assert harness.edits == []
        harness.engine.check_integrity()
    post(harness, TEXT[3:7])
    assert text_of(harness.step()) == TEXT[3:8]


def test_a_plan_that_waits_has_the_events_of_started_sequences():
    harness = drafting(policy="sync", sources=["a"])
    harness.submit("t", OTHER, max_tokens=3)
    assert not harness.waits, "its prompt is read instead"
    assert names(harness.engine.pop_events()) == ["t"]


def test_caches_are_cut_back_before_a_wait():
    harness = drafting(policy="sync", sources=["a"])
    post(harness, [(TEXT[3] + 1) % N_VOCAB, 8, 8, 8])
    harness.step()
    harness.next()
    assert harness.edits == [(0, 3)]
    post(harness, TEXT[4:8], base=4)
    harness.next()
    assert harness.edits == []


@pytest.mark.parametrize("traits", [STATE, MemoryTraits()], ids=["cannot trim", "has found no room"])
def test_a_model_waits_for_no_drafts_that(traits):
    harness = drafting(policy="sync", sources=["a"], traits=traits)
    if traits != STATE:
        harness.find_no_room()
    assert not harness.waits


def test_steps_are_predicted_unless_they_have_prompts():
    harness = drafting()
    assert harness.next().report(0.0, 0.1, 1, is_usual=True).n_expected == 1
    post(harness, TEXT[3:5])
    assert harness.next().report(0.0, 0.1, 1, is_usual=True).n_expected == 1 + 0.5 + 0.5**2
    harness.submit("t", OTHER)
    assert harness.next().report(0.0, 0.1, 1, is_usual=True).n_expected is None


def test_padding_changes_neither_text_nor_what_is_reported():
    plain, padded = drafting(), drafting()
    padded.speculation.width = lambda n, _: n + 3
    for harness in (plain, padded):
        post(harness, [*TEXT[3:5], (TEXT[5] + 1) % N_VOCAB])
    assert padded.next().n_tokens == plain.next().n_tokens + 3
    for harness in (plain, padded):
        harness.step()
        harness.step()
    assert padded.engine.slots.sequences["s"].tokens == plain.engine.slots.sequences["s"].tokens
    reports = [harness.speculation.describe() for harness in (plain, padded)]
    for report in reports:  # what a step takes is another matter
        del report["step_ms"], report["predicted_tokens_per_second"]
    assert reports[0] == reports[1]


def test_no_step_is_padded_beyond_its_context_or_beside_a_prompt():
    harness = drafting()
    harness.speculation.width = lambda n, _: n + 10_000
    assert harness.next().n_tokens == 1
    harness.speculation.width = lambda n, _: n + 1
    harness.submit("t", OTHER)
    assert harness.next().n_tokens == 1 + len(OTHER)


def test_what_was_done_is_reported():
    harness = drafting()
    post(harness, [TEXT[3], (TEXT[4] + 1) % N_VOCAB])
    harness.speculation.on_wait(0.25)
    harness.step()
    report = harness.speculation.describe()
    assert (report["n_steps"], report["n_committed"], report["depths"]) == (2, 3, {"0": 1, "2": 1})
    assert (report["n_draft_tokens"], report["n_accepted_tokens"], report["n_wasted_tokens"]) == (2, 1, 1)
    assert report["n_recovered"] == 1
    assert (report["step_seconds"], report["wait_seconds"]) == (2 * STEP_SECONDS, 0.25)
    assert report["step_ms"].keys() == {"2", "3"}


# Many sequences


def test_those_that_find_no_slot_start_in_the_order_they_came():
    harness = EngineHarness()
    for name in "abcde":
        harness.submit(name, LONG, max_tokens=3)
    events = harness.drain()
    assert names(events) == list("abcde")
    assert all(text_of(events, name) == TEXT[2:5] for name in "abcde")


def test_a_prompt_is_read_in_small_pieces_while_others_generate():
    harness = EngineHarness(n_prompt_chunk=3)
    harness.submit("s", LONG)
    harness.step()
    harness.submit("t", [4] * 9)
    harness.step()
    assert [len(span.tokens) for span in harness.spans] == [1, 3]


@pytest.mark.parametrize(("n_batch", "lengths"), [(8, [6, 2]), (4, [4])])
def test_two_prompts_share_a_batch_if_it_has_room_for_both(n_batch, lengths):
    """One token of a prompt in a step with another prompt would cost as much attention as 64 (a tile)."""
    harness = EngineHarness(n_batch=n_batch)
    harness.submit("s", [4] * 6)
    harness.submit("t", [5] * 6)
    harness.step()
    assert [len(span.tokens) for span in harness.spans] == lengths


def test_when_cells_run_out_the_youngest_steps_back_and_goes_on_before_those_that_wait():
    harness = EngineHarness(n_ctx=99)
    harness.submit("a", LONG)
    harness.submit("b", LONG)
    harness.submit("c", LONG, max_tokens=1)
    events = harness.drain()
    assert text_of(events, "a") == text_of(events, "b") == TEXT[2:]
    assert [(each.type, each.sequence) for each in events if not isinstance(each, Committed)] == [
        ("started", "a"),
        ("started", "b"),
        ("finished", "a"),
        ("started", "b"),
        ("started", "c"),
        ("finished", "c"),
        ("finished", "b"),
    ]
    assert [each.again for each in of(Started, events)] == [False, False, True, False]


# Caches that outlive their sequences


FOUND = {
    "an earlier text is continued": ({}, [LONG, TEXT[:12]], 11),
    "a common beginning alone overwrites no other text": (
        *({}, [[1, 4, *[5] * 10], [1, 4, *[6] * 10], [1, 4, *[5] * 10, 7]], 12),
    ),
    "a new text does not take the slot used last": ({}, [[n] * 10 for n in (1, 4, 5, 4)], 9),
    "it takes the other one": ({}, [[n] * 10 for n in (1, 4, 5, 1)], 0),
    "the newest caches stay": ({"n_slots": 3}, [[1] * 40, [4] * 40, [5] * 40, [4] * 41], 40),
    "the oldest makes room": ({"n_slots": 3}, [[n] * 40 for n in (1, 4, 5, 1)], 0),
    "a state cannot be cut": ({"traits": STATE}, [LONG, TEXT[:8]], 0),
    "a state is used whole": ({"traits": STATE}, [LONG, TEXT[:15]], 11),
}


@pytest.mark.parametrize(("limits", "prompts", "n_cached"), FOUND.values(), ids=FOUND)
def test_a_prompt_finds_cached(limits, prompts, n_cached):
    harness = EngineHarness(n_ctx=100, **limits)
    found = [harness.complete(str(i), prompt, max_tokens=10) for i, prompt in enumerate(prompts)]
    assert found[-1] == n_cached


def test_rejected_drafts_are_not_taken_for_cached_text():
    harness = EngineHarness()
    harness.submit("s", LONG, max_tokens=4)
    harness.step()
    wrong = (TEXT[3] + 1) % N_VOCAB
    post(harness, [wrong, 6])
    harness.drain()
    assert harness.complete("t", [*TEXT[:3], wrong, 6, 7], max_tokens=1) == 3


# Cancelling


def test_a_cancelled_sequence_frees_its_slot_at_once():
    harness = EngineHarness(n_slots=1)
    harness.submit("s", LONG)
    harness.submit("t", LONG, max_tokens=1)
    harness.step()
    harness.cancel("s")
    assert names(harness.step()) == ["t"]
    assert harness.engine.idle


def test_a_waiting_sequence_can_be_cancelled():
    harness = EngineHarness(n_slots=1)
    harness.submit("s", LONG, max_tokens=3)
    harness.submit("t", LONG)
    harness.cancel("t")
    assert names(harness.drain(), Finished) == ["s"]


def test_cancelling_what_has_ended_does_nothing():
    harness = drafting()
    harness.cancel("unknown")
    harness.engine.check_integrity()
    assert text_of(harness.step()) == TEXT[3:4]


def test_what_a_cancelled_sequence_has_cached_is_reused():
    harness = EngineHarness(n_batch=8)
    harness.submit("s", [4] * 19)
    harness.step()
    harness.cancel("s")
    assert harness.complete("t", [4] * 12, max_tokens=1) == 8


def stored_beginning(n_slots):
    """A harness whose prompt cache is full of one text of 60 tokens. It has the policy "sync" and a back."""
    size = PromptCacheSize(1000, 1)
    harness = EngineHarness(policy="sync", n_slots=n_slots, n_ctx=400, n_ctx_sequence=200, prompt_cache=size)
    for name, text in [("a", STORED), ("b", [8] * 60)]:
        harness.complete(name, text, max_tokens=3)
    harness.apply(SetBacks(names=["back"]))
    return harness


def test_a_text_is_loaded_before_a_wait_so_that_nobody_waits_for_a_client_that_left():
    harness = stored_beginning(n_slots=1)
    harness.submit("c", STORED)
    assert harness.waits
    assert harness.target.slots[0] == STORED[:-1]
    harness.cancel("c")
    harness.engine.pop_events()
    assert harness.complete("d", [8] * 60, max_tokens=1) > 0


def test_a_sequence_starts_beside_one_whose_text_is_being_loaded_and_shares_it():
    harness = stored_beginning(n_slots=2)
    harness.complete("e", [6] * 60, max_tokens=1)
    harness.submit("c", STORED, max_tokens=1)
    harness.submit("d", [*STORED, 1], max_tokens=1)
    harness.next()
    started = of(Started, harness.engine.pop_events())
    assert [(event.sequence, event.n_cached) for event in started] == [("c", 59), ("d", 59)]
    harness.drain()


def test_what_a_slot_got_of_another_is_there_before_a_wait():
    """A copied recurrent slot has the state after all tokens of its source until a state is loaded."""
    traits = MemoryTraits(n_step_checkpoints=1, n_rollback=0)
    harness = EngineHarness(
        policy="off", n_slots=2, n_ctx=400, n_ctx_sequence=200, traits=traits, n_checkpoints=2
    )
    harness.submit("a", [*STORED, 1, 2], max_tokens=100, checkpoints=(60,))
    for _ in range(8):
        harness.step()
    harness.speculation.set_policy("sync", 4)
    harness.apply(SetBacks(names=["back"]))
    harness.submit("c", [*STORED, 5], max_tokens=5)
    assert harness.waits
    assert harness.target.slots[1] == STORED


# Texts that move to host memory and back in parts, while others generate


def in_parts(n_slots=3, n_part=10, n_ctx=400, n_steps=1, step_bytes=0):
    """A harness whose slots hold texts of 60 tokens, except one whose sequence has begun to generate."""
    size = PromptCacheSize(1000, 1, n_part=n_part)
    harness = EngineHarness(
        n_slots=n_slots, n_ctx=n_ctx, n_ctx_sequence=200, prompt_cache=size, step_bytes=step_bytes
    )
    for token in range(4, 4 + n_slots - 1):
        harness.submit(str(token), [token] * 60, max_tokens=1)
    harness.drain()
    harness.submit("s", LONG, max_tokens=50)
    for _ in range(n_steps):
        harness.step()
    return harness


def n_moved(harness, kind):
    """The number of tokens that are stored or loaded before the next step."""
    harness.next()
    parts = [edit.snapshot for edit in harness.edits if isinstance(edit, kind)]
    return sum(part.end - part.start for part in parts)


def test_idle_texts_are_stored_a_part_a_step():
    harness = in_parts()
    for _ in range(15):
        assert n_moved(harness, Store) <= 10
        harness.step()
    assert [len(slot) for slot in harness.target.slots if slot[:1] != [LONG[0]]] == [0, 0]


def test_where_the_link_is_quick_several_parts_a_step():
    harness = in_parts(step_bytes=1)
    harness.engine.edited([Store(1, Snapshot("text", 9, 10))], STEP_SECONDS / 20)
    assert n_moved(harness, Store) > 10


def test_a_text_is_loaded_a_part_a_step_while_others_generate():
    harness = in_parts(n_steps=16)
    harness.submit("t", [4] * 61, max_tokens=3)
    events, n_steps = harness.step(), 1
    assert of(Started, events)[0].n_cached == 60
    while not text_of(events := harness.step(), "t"):
        assert text_of(events, "s")
        n_steps += 1
    assert n_steps == 5, "the sixth part is loaded in the step that reads the last token"


def test_of_several_texts_a_part_a_step_is_loaded():
    harness = in_parts(n_slots=4, n_steps=26)
    for token in (4, 5, 6):
        harness.submit(str(token), [token] * 61, max_tokens=1)
    for _ in range(18):
        assert n_moved(harness, Restore) <= 10
        harness.step()
    assert not harness.engine.slots.describe()["waiting"]


def test_a_text_alone_is_loaded_at_once():
    harness = in_parts()
    harness.drain()
    harness.submit("t", [4] * 61, max_tokens=3)
    assert text_of(harness.step(), "t")


def test_who_leaves_while_its_text_is_loaded_leaves_what_is_there_to_others():
    harness = in_parts(n_steps=16)
    harness.submit("t", [4] * 61, max_tokens=3)
    harness.step()
    harness.cancel("t")
    harness.engine.check_integrity()
    harness.submit("u", [4] * 61, max_tokens=3)
    assert of(Started, harness.step())[0].n_cached == 60
    assert [*[4] * 61, *text_of(harness.drain(), "u")] == plain_run(
        submit(tokens=[4] * 61, max_tokens=3), 200
    )[0]


def test_while_a_text_is_loaded_the_others_drafts_are_not_waited_for():
    harness = in_parts(n_steps=16)
    harness.speculation.set_policy("sync", 4)
    harness.apply(SetBacks(names=["back"]))
    assert harness.next().seconds > 0
    harness.submit("t", [4] * 61, max_tokens=3)
    waits = [harness.next().seconds for _ in range(7)]
    assert waits[:5] == [0] * 5, "a part is loaded instead"
    assert waits[6] > 0


def test_a_sequence_starts_when_what_its_slot_held_is_stored():
    harness = in_parts(n_slots=2)
    harness.submit("t", OTHER, max_tokens=3)
    events = harness.step()
    assert of(Started, events) == []
    while not of(Started, events):
        assert text_of(events, "s")
        events = harness.step()
    assert harness.complete("u", [4] * 61, max_tokens=1) == 60


# Recurrent states that llama.cpp rolls back, if no pass has followed


def rolling_back(**limits):
    traits = MemoryTraits(n_rollback=6, equal_lengths=True)
    harness = EngineHarness(**{"n_slots": 3, "n_ctx": 400, "n_ctx_sequence": 200} | limits, traits=traits)
    harness.apply(SetBacks(names=["back"]))
    return harness


def test_a_prompt_that_was_decoded_before_a_draft_is_not_rolled_back():
    harness = rolling_back()
    harness.submit("s", LONG, max_tokens=50)
    harness.step()
    harness.submit("t", [4] * 12, max_tokens=1)
    post(harness, TEXT[3:6])
    harness.step()
    harness.submit("u", [*[4] * 10, 5, 6], max_tokens=1)
    assert of(Started, harness.step())[0].n_cached == 0


def test_a_prompt_that_was_decoded_last_is_rolled_back():
    harness = rolling_back()
    harness.complete("t", [4] * 12, max_tokens=1)
    assert harness.complete("u", [*[4] * 10, 5, 6], max_tokens=1) == 10


def test_a_slot_that_the_model_had_to_empty_is_read_again():
    harness = rolling_back()
    harness.submit("s", LONG, max_tokens=8)
    harness.step()
    harness.submit("t", OTHER, max_tokens=5)
    plan = harness.next()
    assert [span.slot for span in plan.layout] == [0, 1]
    harness.find_no_room([1])
    assert [*OTHER, *text_of(harness.drain(), "t")] == plain_run(submit(tokens=OTHER, max_tokens=5), 200)[0]


def test_no_draft_takes_the_cells_that_its_padding_needs():
    harness = rolling_back(n_slots=2, n_ctx=25, n_ctx_sequence=24)
    for name, prompt in [("s", LONG), ("t", OTHER)]:
        harness.submit(name, prompt, max_tokens=20)
    harness.step()
    while harness.engine.slots.describe()["n_free"] > 9:
        harness.step()
    assert harness.engine.slots.describe()["n_free"] >= 7, "as many as are decoded"
    post(harness, [1] * 5, base=len(harness.target.slots[0]) + 1)
    assert harness.next().n_tokens == 2, "1 + 5 and 1, with padding 12"


# Shedding: the model had no room although the count said so


def test_after_a_full_cache_the_next_step_takes_one_token_of_each():
    harness = drafting()
    harness.submit("t", [4] * 9)
    post(harness, TEXT[3:6])
    assert len(harness.next().layout) == 2
    harness.find_no_room()
    harness.step()
    assert [len(span.tokens) for span in harness.spans] == [1, 1]
    harness.step()
    assert sum(len(span.tokens) for span in harness.spans) > 2


def test_after_a_full_cache_no_sequence_starts():
    harness = drafting()
    harness.next()
    harness.find_no_room()
    harness.submit("t", LONG)
    assert names(harness.step()) == []
    assert names(harness.step()) == ["t"]


def test_idle_caches_are_given_up_before_a_place():
    harness = EngineHarness()
    harness.complete("s", [4] * 9, max_tokens=1)
    harness.submit("t", LONG)
    harness.next()
    harness.find_no_room()
    harness.step()
    assert harness.target.slots[0] == []
    assert [span.slot for span in harness.spans] == [1]


def test_the_youngest_gives_up_its_place_before_the_oldest_ends():
    harness = EngineHarness()
    harness.submit("s", LONG)
    harness.submit("t", LONG)
    harness.step()
    for _ in range(3):  # take less, then the place, then what is cached there
        harness.next()
        assert harness.find_no_room() == []
    harness.step()
    assert harness.target.slots[1] == []
    assert [span.slot for span in harness.spans] == [0]
    assert text_of(harness.drain(), "t") == TEXT[3:]


def test_a_single_token_that_finds_no_room_ends_the_text():
    harness = drafting()
    for _ in range(2):
        harness.next()
        events = harness.find_no_room()
    assert events == [Finished(sequence="s", reason="length")]
    assert harness.engine.idle


def test_after_a_full_cache_a_scheduler_whose_sequences_are_cancelled_goes_on():
    harness = drafting()
    harness.submit("t", LONG, max_tokens=3)
    harness.next()
    harness.find_no_room()
    harness.cancel("s")
    assert text_of(harness.drain(), "t") == TEXT[2:5]


# Integrity


def test_a_sequence_that_was_forgotten_in_its_slot_is_noticed():
    harness = drafting()
    harness.engine.slots.sequences.clear()
    with pytest.raises(AssertionError, match="has ended"):
        harness.engine.check_integrity()


def test_a_prompt_is_decoded_once_for_simultaneous_requests():
    prompt = [*LONG, *range(4, 24), *range(4, 24)]
    harness = EngineHarness(n_slots=4, n_ctx=400)
    for name in "abcd":
        harness.submit(name, tokens=prompt, max_tokens=2)
    started = of(Started, harness.drain())
    assert [each.n_cached for each in started] == [0, *[len(prompt) - 1] * 3]
    assert sum(sum(step) for step in harness.target.steps) == len(prompt) + 3 + 4


class Choking:
    """A sampler that chooses some tokens and then fails."""

    def __init__(self, error, n):
        self.error, self.n = error, n

    def choose(self, _logits, position):
        if position >= self.n:
            raise self.error
        return TEXT[position]

    def accept(self, token):
        pass


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (RequestError("too complex", "grammar"), ("grammar", False)),
        (UnavailableError("no process"), (None, True)),
        (ValueError(), (None, False)),
    ],
)
def test_a_sequence_whose_tokens_cannot_be_chosen_fails_alone(error, why):
    harness = EngineHarness()
    whole = harness.engine._make_sampler
    harness.engine._make_sampler = lambda request: (
        Choking(error, len(LONG) + 2) if request.sequence == "s" else whole(request)
    )
    harness.submit(tokens=LONG)
    harness.submit("t", tokens=LONG, max_tokens=6)
    harness.step()
    post(harness, TEXT[3:7])
    events = harness.drain()
    assert [(each.sequence, (each.param, each.may_recover)) for each in of(Failed, events)] == [("s", why)]
    assert names(events, Finished) == ["t"]
    assert harness.complete("u", tokens=TEXT[:4], max_tokens=1) == 3, "what was cached stays right"


def test_a_sequence_in_the_queue_costs_no_sampler():
    made = []
    harness = EngineHarness(n_slots=1)
    whole = harness.engine._make_sampler
    harness.engine._make_sampler = lambda request: made.append(request.sequence) or whole(request)
    harness.submit(tokens=LONG)
    harness.submit("t", tokens=LONG)
    harness.step()
    assert made == ["s"]


def test_a_step_counts_what_the_model_adds_to_shorter_spans():
    harness = EngineHarness(n_slots=2, n_ctx=200, own_cells=True)
    harness.submit("a", tokens=LONG)
    harness.submit("b", tokens=LONG)
    harness.step()
    harness.apply(Draft(sequence="a", source="x", base=3, tokens=TEXT[3:6]))
    plan = harness.next()
    assert [len(span.tokens) for span in plan.layout] == [4, 1]
    assert plan.n_tokens == 8


def test_a_prompt_that_is_read_apart_is_counted_as_a_pass():
    harness = EngineHarness(n_ctx=4096, n_ctx_sequence=2048, n_batch=512, tiles_attention=True)
    harness.submit("a", tokens=[1] * 1100)
    while not of(Committed, harness.step()):
        pass
    harness.submit("b", tokens=[2] * 100)
    plan = harness.next()
    assert [len(span.tokens) for span in plan.layout] == [1, 100]
    assert (plan.n_tokens, plan.layout.n_ubatches) == (101, 2)


def test_a_step_counts_what_makes_up_its_sizes():
    harness = EngineHarness(n_slots=2, n_ctx=200, own_cells=True, batch_sizes=InvariantSizes((2, 3), (4, 8)))
    harness.submit("a", tokens=LONG)
    harness.step()
    harness.apply(Draft(sequence="a", source="x", base=3, tokens=TEXT[3:8]))
    plan = harness.next()
    assert [len(span.tokens) for span in plan.layout] == [3]  # no wider draft
    assert (plan.n_tokens, plan.layout.n_ubatches) == (3, 1)


@pytest.mark.parametrize(("batch_sizes", "n_tokens"), [(((2, 3), (4, 8)), 1), (((2, 3), (2, 3)), 3)])
def test_where_prompts_are_decoded_otherwise_the_last_of_their_tokens_has_no_draft(batch_sizes, n_tokens):
    harness = EngineHarness(n_slots=1, n_ctx=100, own_cells=True, batch_sizes=InvariantSizes(*batch_sizes))
    harness.submit("a", tokens=[5])
    harness.apply(Draft(sequence="a", source="x", base=1, tokens=[6, 7]))
    plan = harness.next()
    assert [len(span.tokens) for span in plan.layout] == [n_tokens]


# Grammars that are followed elsewhere

CONSTRAINED = SamplingParameters(seed=3, temperature=0.9, grammar="any")


class Unanswered(ToyGrammar):
    """Answers the first questions, and no later question."""

    n_answers = 2

    @property
    def is_ready(self):
        return self.n_answers > 0

    def allows(self, tokens):
        if not self.n_answers:
            raise PendingAnswerError("wait")
        self.n_answers -= 1
        return super().allows(tokens)


def follow(harness, make_grammar):
    harness.engine._make_sampler = lambda request: toy_sampler(
        request.sampling, request.tokens, follow=lambda _: make_grammar()
    )


def test_a_grammar_that_does_not_answer_holds_up_only_its_own_sequence():
    harness = EngineHarness()
    follow(harness, Unanswered)
    harness.submit("slow", tokens=LONG, sampling=CONSTRAINED)
    harness.submit("t", tokens=LONG, max_tokens=9)
    committed = [of(Committed, harness.step()) for _ in range(9)]
    assert all("t" in [event.sequence for event in events] for events in committed)
    assert sum("slow" in [event.sequence for event in events] for events in committed) == 2


def test_a_sequence_that_waits_for_its_grammar_can_be_cancelled():
    harness = EngineHarness()
    follow(harness, Unanswered)
    harness.submit("slow", tokens=LONG, sampling=CONSTRAINED)
    harness.submit("t", tokens=LONG, max_tokens=4)
    for _ in range(3):
        harness.step()
    harness.cancel("slow")
    assert names(harness.drain(), Finished) == ["t"]
    assert harness.complete("u", tokens=LONG, max_tokens=3) > 0, "what was decoded serves others"


def test_steps_that_waited_for_a_grammar_say_nothing_about_speculation():
    harness = EngineHarness(policy="adaptive")
    follow(harness, Unanswered)
    learned = []
    harness.speculation.on_step = learned.append
    harness.submit("slow", tokens=LONG, sampling=CONSTRAINED)
    harness.submit("t", tokens=LONG, max_tokens=9)
    for _ in range(5):
        harness.step()
    assert [report.n_expected is None for report in learned] == [True, False, True, False, False]


class Mute(Unanswered):
    n_answers = 0


class TimeBudget:
    def __init__(self):
        self.values = []

    def set(self, seconds):
        self.values.append(seconds)


def waiting(n):
    """A harness in which `n` sequences wait for their grammars, and the seconds that it waits for them."""
    harness = EngineHarness()
    follow(harness, Mute)
    for i in range(n):
        harness.submit(f"s{i}", tokens=[*LONG, i], sampling=CONSTRAINED)
    harness.engine._budget = TimeBudget()
    harness.step()
    return harness, harness.engine._budget.values


def test_a_step_waits_in_proportion_to_its_own_time_and_gives_each_choice_an_equal_part():
    _, seconds = waiting(2)
    assert seconds == [0.0, STEP_SECONDS / 8, STEP_SECONDS / 8]


def test_where_others_run_what_waits_is_only_looked_at():
    harness, seconds = waiting(1)
    seconds.clear()
    harness.next()
    harness.submit("t", tokens=LONG, max_tokens=9)
    for _ in range(2):
        harness.next()
    assert seconds[0] == seconds[1] > seconds[2] == 0.0


class Late(ToyGrammar):
    """Allows everything, and answers `n_answers` times."""

    n_answers = 0

    @property
    def is_ready(self):
        return Late.n_answers > 0

    def allows(self, tokens):
        if not Late.n_answers:
            raise PendingAnswerError("wait")
        Late.n_answers -= 1
        return [True] * len(tokens)


@pytest.mark.parametrize("others", [[], ["t"]], ids=["alone", "beside another"])
@pytest.mark.parametrize("memory", ["windows", "recurrent with rollback"])
def test_where_a_grammar_answers_late_a_wrong_draft_costs_nothing_that_was_read(memory, others, monkeypatch):
    monkeypatch.setattr(Late, "n_answers", 2)
    harness = EngineHarness(traits=MEMORIES[memory])
    follow(harness, Late)
    harness.submit(tokens=LONG, sampling=SamplingParameters(seed=0, temperature=0, grammar="any"))
    for each in others:
        harness.submit(each, tokens=OTHER)
    harness.step()
    post(harness, [TEXT[3], (TEXT[4] + 1) % N_VOCAB, 8, 8])
    harness.step()
    for _ in range(2):
        harness.execute(harness.next())
    Late.n_answers = 1
    harness.next()
    (slot, *_) = harness.engine.slots.running()
    assert slot.sequence.tokens == TEXT[:5]
    assert slot.cache.tokens == TEXT[:4]


def test_logits_of_what_waits_outlive_their_step():
    harness = EngineHarness()
    follow(harness, Mute)
    harness.submit("slow", tokens=LONG, sampling=CONSTRAINED)
    plan = harness.next()
    logits = harness.target.decode(plan.layout)
    harness.engine.decoded(plan, logits, NOW, STEP_SECONDS)
    (sequence,) = harness.engine.slots.sequences.values()
    assert not np.shares_memory(sequence.verification.rows, logits[0])


# Sessions of an agent: how much of a prompt of 16,000 tokens is cached

MEMORIES = {
    "plain": MemoryTraits(),
    "windows": MemoryTraits(n_rollback=64),
    "recurrent with rollback": MemoryTraits(n_rollback=8, equal_lengths=True),
    "recurrent": MemoryTraits(n_rollback=0, n_step_checkpoints=1, equal_lengths=True),
}


INSTRUCTIONS = 1000
"""The number of tokens at the beginning of a prompt that other sessions may share."""


class Session:
    """An agent's turns. Each turn continues everything that was read and written before."""

    def __init__(self, memory, n_turns=1, **more):
        traits = MEMORIES[memory]
        n_checkpoints = 0 if traits.can_trim else 8
        self.harness = EngineHarness(
            n_slots=2,
            n_ctx=40_000,
            n_ctx_sequence=20_000,
            n_batch=512,
            traits=traits,
            n_checkpoints=n_checkpoints,
            **more,
        )
        self.harness.target.n_window = 20_000
        self._random = random.Random(1)
        self.question = self.some(15_000)
        self.prompt = self.text = self.question
        self.ask(self.question)
        for _ in range(n_turns):
            self.ask([*self.text, *self.some(60)])

    def some(self, n):
        """New tokens: a question, or the result of a tool."""
        return self._random.choices(range(N_VOCAB), k=n)

    def ask(self, prompt):
        """Return the number of cached tokens of the prompt. The template says where it may be cut."""
        cuts = (INSTRUCTIONS, len(self.question) - 1, len(prompt) - 1)
        self.harness.submit(str(self._random.random()), prompt, max_tokens=20, checkpoints=cuts)
        events = self.harness.drain()
        (started,), self.prompt = of(Started, events), prompt
        self.text = [*prompt, *text_of(events, started.sequence)]
        return started.n_cached


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize(
    ("n_turns", "kept", "n_new"),
    [
        pytest.param(1, "text", 60, id="the next turn reads what is new"),
        pytest.param(1, "prompt", 0, id="a prompt that is sent again"),
        pytest.param(1, "prompt", 30, id="an answer that is changed"),
        pytest.param(12, "question", 300, id="all thoughts since the last question are dropped"),
    ],
)
def test_what_a_session_goes_on_from_is_not_read_again(memory, n_turns, kept, n_new):
    """There may be any number of turns, each with its own checkpoint."""
    session = Session(memory, n_turns)
    known = getattr(session, kept)
    assert session.ask([*known, *session.some(n_new)]) >= len(known) - 1


@pytest.mark.parametrize("memory", MEMORIES)
def test_it_does_so_after_another_session_had_its_slots(memory):
    size = PromptCacheSize(100_000, 1, state_bytes=10 if MEMORIES[memory].n_rollback is not None else 0)
    session = Session(memory, n_turns=12, prompt_cache=size)
    kept, question = session.text, session.question
    for _ in range(2):
        session.question = session.some(15_000)
        session.ask(session.question)
    session.question = question
    assert session.ask([*kept, *session.some(60)]) == len(kept) - 1
    assert session.ask([*question, *session.some(300)]) >= len(question) - 1
