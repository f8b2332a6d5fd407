from lead.engine.scheduler import STEP_SECONDS, PromptChunk


def chunk_after(*steps, n_min=128, n_max=512):
    chunk = PromptChunk(n_min, n_max)
    for n_tokens, seconds in steps:
        chunk.learn(n_tokens, seconds)
    return chunk.n_tokens


def test_before_anything_is_measured_it_is_the_least():
    assert chunk_after() == 128


def test_a_step_takes_about_as_long_as_it_may_in_whole_tiles():
    assert chunk_after((512, 512 * STEP_SECONDS / 300)) == 256


def test_where_steps_may_take_longer_they_read_more():
    chunk = PromptChunk(128, 2048, 4 * STEP_SECONDS)
    chunk.learn(512, 512 * STEP_SECONDS / 300)
    assert chunk.n_tokens == 1152


def test_a_slow_machine_reads_the_least():
    assert chunk_after((512, 10.0)) == 128


def test_a_fast_machine_fills_the_batch():
    assert chunk_after((512, 0.01)) == 512


def test_one_disturbed_step_does_not_decide():
    assert chunk_after((512, 0.1), (512, 0.6)) > 400


def test_steps_with_a_few_tokens_of_a_prompt_say_nothing():
    assert chunk_after((3, 0.001)) == 128


def test_a_batch_may_be_smaller_than_the_least():
    assert chunk_after(n_min=128, n_max=32) == 32
