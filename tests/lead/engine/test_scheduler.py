import pytest

from lead.engine.scheduler import STEP_SECONDS, PromptChunk


def chunk_after(*steps, n_min=128, n_max=512):
    chunk = PromptChunk(n_min, n_max)
    for n_tokens, seconds in steps:
        chunk.learn(n_tokens, seconds)
    return chunk.n_tokens


@pytest.mark.parametrize(
    ("steps", "n_tokens"),
    [
        ([], 128),
        ([(512, 512 * STEP_SECONDS / 300)], 256),
        ([(512, 10.0)], 128),
        ([(512, 0.01)], 512),
        ([(3, 0.001)], 128),
    ],
    ids=["nothing is measured", "about as long as it may", "slow", "fast", "too few tokens to say anything"],
)
def test_a_chunk_has_whole_tiles_as_many_as_a_step_may_take(steps, n_tokens):
    assert chunk_after(*steps) == n_tokens


def test_where_steps_may_take_longer_they_read_more():
    chunk = PromptChunk(128, 2048, 4 * STEP_SECONDS)
    chunk.learn(512, 512 * STEP_SECONDS / 300)
    assert chunk.n_tokens == 1152


def test_one_disturbed_step_does_not_decide():
    assert chunk_after((512, 0.1), (512, 0.6)) > 400


def test_a_batch_may_be_smaller_than_the_least():
    assert chunk_after(n_min=128, n_max=32) == 32
