import pytest

from lead.engine.events import Committed, Failed, Started
from shared.exact.batch_invariance import InvariantSizes
from shared.image_span import ImageSpan, row_identities, without_images
from shared.llama.memory_traits import MemoryTraits
from shared.protocol import Draft
from shared.sampling.parameters import SamplingParameters
from tests.engine_harness import EngineHarness
from tests.toy_engine import inline_drafter, submit
from tests.toy_model import GREEDY, plain_run

N_ROWS = 12
BEFORE, AFTER = [4, 5, 6, 7], [8, 9, 10]
GRID = {"n_rows": N_ROWS, "n_positions": 4, "width": 4}
WHOLE = {"n_rows": N_ROWS, "n_positions": N_ROWS, "whole": True}


def with_images(*keys, kind=GRID, before=BEFORE, after=AFTER):
    """The tokens and images of a prompt. There is text before each image and after the last image."""
    tokens, images = [], []
    for key in keys:
        tokens += before
        images.append(ImageSpan(start=len(tokens), key=key, **kind))
        tokens += row_identities(key, N_ROWS)
    return {"tokens": [*tokens, *after], "images": tuple(images)}


def answers(events):
    steps = [each for each in events if isinstance(each, Committed) and each.sequence == "s"]
    return [token for step in steps for token in step.tokens]


def truth(**request):
    asked = submit(max_tokens=9, **request)
    return plain_run(asked, 100)[0][len(asked.text) :]


@pytest.mark.parametrize("kind", [GRID, WHOLE])
@pytest.mark.parametrize("keys", ["a", "aa", "ab"])
def test_an_answer_is_that_of_text_and_images(kind, keys):
    run = EngineHarness()
    run.submit(max_tokens=9, **with_images(*keys, kind=kind))
    assert answers(run.drain()) == truth(**with_images(*keys, kind=kind))
    assert run.target.n_images == len(keys)


def test_another_image_of_the_same_size_gives_another_answer():
    assert truth(**with_images("a")) != truth(**with_images("b"))


def test_events_are_counted_without_rows_of_images():
    run = EngineHarness()
    run.submit(max_tokens=2, **with_images("a"))
    first = next(event for event in run.drain() if isinstance(event, Committed))
    assert first.start == len(BEFORE) + len(AFTER)


def cached_after_leaving(n_steps):
    """The number of cached tokens if a client asks again after it left `n_steps` into the request."""
    run = EngineHarness()
    run.submit("s", **with_images("a"))
    for _ in range(n_steps):
        run.step()
    run.cancel("s")
    return run.complete("t", max_tokens=1, **with_images("a"))


@pytest.mark.parametrize(
    ("n_steps", "n_cached"),
    [(2, len(BEFORE)), (3, len(BEFORE) + N_ROWS + len(AFTER) - 1)],
    ids=["it was being read", "it was read"],
)
def test_an_image_is_kept_if_it_was_read_when_its_client_left(n_steps, n_cached):
    assert cached_after_leaving(n_steps) == n_cached


def test_an_image_is_all_that_a_step_reads_of_prompts():
    run = EngineHarness(n_batch=64, n_ctx=400)
    run.submit("s", max_tokens=1, **with_images("a"))
    run.submit("t", max_tokens=1, **with_images("b"))
    steps = []
    while not run.engine.idle:
        run.step()
        steps.append([len(span.tokens) for span in run.spans])
    assert steps == [[4, 4], [12], [3], [12], [3]]


def test_answers_of_others_go_on_beside_an_image():
    run = EngineHarness(policy="off")
    endless = SamplingParameters(seed=0, temperature=0, ignore_eos=True)
    run.submit("other", tokens=[1, 2], max_tokens=30, sampling=endless)
    run.step()
    run.submit("s", max_tokens=9, **with_images("a"))
    run.step()
    run.step()
    assert sorted(len(span.tokens) for span in run.spans) == [1, N_ROWS]
    assert answers(run.drain()) == truth(**with_images("a"))


def test_the_same_image_is_not_read_again():
    run = EngineHarness()
    run.complete("one", max_tokens=1, **with_images("a"))
    n_cached = run.complete("two", max_tokens=1, **with_images("a", after=[11, 12]))
    assert (n_cached, run.target.n_images) == (len(BEFORE) + N_ROWS, 1)


def test_another_image_is_read_from_its_first_row_on():
    run = EngineHarness(n_slots=1, n_ctx=100)
    run.complete("one", max_tokens=1, **with_images("a"))
    assert run.complete("two", max_tokens=1, **with_images("b")) == len(BEFORE)
    assert run.complete("three", max_tokens=1, **with_images("b", "a")) == len(BEFORE) + N_ROWS


def test_no_checkpoint_divides_an_image():
    traits = MemoryTraits(n_rollback=0, equal_lengths=True)
    run = EngineHarness(traits=traits, n_checkpoints=3, n_ctx=400, n_ctx_sequence=200)
    run.submit(max_tokens=9, checkpoints=(6, 17), **with_images("a", after=[8] * 60))
    (sequence,) = run.engine.slots.sequences.values()
    assert sequence.checkpoints == (4, 17)


def test_a_draft_is_counted_as_its_source_counts():
    """A back has the text without the images."""
    request = with_images("a")
    expected, base = truth(**request), len(BEFORE) + len(AFTER)
    run = EngineHarness(depth=9)
    run.submit(max_tokens=9, **request)
    run.apply(Draft(sequence="s", source="back", base=base, tokens=expected))
    events = run.drain()
    assert answers(events) == expected
    assert sum(event.n_accepted for event in events if isinstance(event, Committed)) == 7


def test_penalties_and_grammars_do_not_see_rows():
    sampling = SamplingParameters(seed=1, temperature=0, repeat_penalty=1.4, repeat_last_n=5, grammar="toy")
    request = with_images("a")
    sampling = sampling.model_copy(update={"grammar_start": len(without_images(request["tokens"]))})
    run = EngineHarness()
    run.submit(max_tokens=9, sampling=sampling, **request)
    assert answers(run.drain()) == truth(sampling=sampling, **request)


def test_a_sequence_that_gives_way_reads_its_image_again():
    run = EngineHarness(n_ctx=100, policy="off")
    run.submit(max_tokens=9, **with_images("a"))
    for _ in range(4):
        run.step()
    run.engine.slots.preempt(run.engine.slots.running()[0])
    while run.engine.slots.evict_idle():
        pass
    events = run.drain()
    assert run.target.n_images == 2
    assert [event.again for event in events if isinstance(event, Started)] == [True]


def test_an_image_without_room_is_tried_again_with_more():
    run = EngineHarness(n_ctx=100)
    run.complete("other", tokens=range(20), max_tokens=1)
    run.submit(max_tokens=9, **with_images("a"))
    run.step()
    run.next()
    run.find_no_room()
    assert answers(run.drain()) == truth(**with_images("a"))


@pytest.mark.parametrize(
    ("limits", "options", "after", "reason"),
    [
        ({}, {"n_keep": 2}, AFTER, "--context-shift"),
        ({"batch_sizes": InvariantSizes((1, 2), (1, 2))}, {}, AFTER, "--exact off"),
        ({"n_ubatch": 8}, {}, AFTER, "--ubatch-size 12"),
        ({}, {}, [], "must end with text"),
    ],
)
def test_what_images_cannot_have_is_refused_with_the_reason(limits, options, after, reason):
    run = EngineHarness(**limits)
    run.submit(max_tokens=9, **with_images("a", kind=WHOLE, after=after), **options)
    (failed,) = run.drain() or run.engine.pop_events()
    assert isinstance(failed, Failed)
    assert reason in failed.reason
    assert failed.param == "messages"


def test_heads_of_the_target_refuse_images():
    run = EngineHarness()
    drafter = inline_drafter(2, 0.0)
    drafter.source = "mtp"
    run.engine.speculation.inline = type("Inline", (), {"drafter": drafter})()
    run.submit(sampling=GREEDY, **with_images("a"))
    (failed,) = run.engine.pop_events()
    assert "--mtp off" in failed.reason
