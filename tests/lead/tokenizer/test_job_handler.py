"""Jobs in real processes, with the shipped model."""

import asyncio
import json
import os
import signal

import pytest

from lead.settings.conversation import ConversationOptions
from lead.settings.limits import RequestLimits
from lead.tokenizer import workers as workers_module
from lead.tokenizer.jobs import FieldTexts, GrammarsNeededError, TokenizerJobs, encode_job
from lead.tokenizer.tokenizer_program import TokenizerProgram
from lead.tokenizer.workers import WorkerDiedError, Workers
from shared.errors import ConfigError, ModelLoadError, ServerError
from shared.model_files.builtin import builtin_target
from shared.sandbox import FOLLOW, JOBS


def program(path=None, **limits):
    return TokenizerProgram(path or builtin_target(), None, ConversationOptions(), RequestLimits(**limits))


def tokenize(text):
    options = {"add_special": False, "parse_special": False, "with_pieces": False}
    return encode_job(TokenizerJobs.tokenize, [text], options)


@pytest.fixture
async def workers():
    workers = Workers(program())
    yield workers
    await asyncio.to_thread(workers.close)


async def ask(workers, message):
    worker = await workers.begin(JOBS)
    try:
        return await worker.ask(message)
    finally:
        worker.close()


async def test_a_text_is_tokenized(workers, vocabulary):
    answer = json.loads(await ask(workers, tokenize("Hello fox")))
    assert answer["tokens"] == vocabulary.tokenize("Hello fox", add_special=False, parse_special=False)


async def test_a_worker_does_jobs_until_one_takes_much_memory(workers):
    worker = await workers.begin(JOBS)
    assert not worker.has_ended
    for _ in range(2):
        assert await worker.ask(tokenize("Hello"))
    answer = json.loads(await worker.ask(tokenize("word " * 400_000)))
    assert len(answer["tokens"]) >= 400_000
    with pytest.raises(WorkerDiedError) as caught:
        await worker.ask(tokenize("Hello"))
    assert caught.value.status == 0
    assert worker.has_ended
    worker.close()


async def test_the_system_ends_a_worker_whose_job_takes_too_long():
    workers = Workers(program(prepare_seconds=0.01))
    with pytest.raises(WorkerDiedError) as caught:
        await ask(workers, tokenize("word " * 800_000))
    assert caught.value.status == -signal.SIGPROF
    await asyncio.to_thread(workers.close)


async def test_a_worker_that_is_killed_is_noticed_and_the_next_one_works(workers):
    worker = await workers.begin(JOBS)
    worker.kill()  # an order to the process that forks, which may take a while
    with pytest.raises(WorkerDiedError) as caught:
        await worker.ask(tokenize("word " * 200_000))
    assert caught.value.status == -signal.SIGKILL
    worker.close()
    assert await ask(workers, tokenize("Hello"))


async def test_a_job_with_a_bug_is_refused_and_leaves_the_process(workers):
    assert isinstance(await ask(workers, tokenize(None)), ServerError)
    assert await ask(workers, tokenize("Hello"))


async def test_a_process_that_forks_no_more_is_killed_and_started_again(workers, monkeypatch):
    assert await ask(workers, tokenize("Hello"))
    os.kill(workers.pid, signal.SIGSTOP)
    monkeypatch.setattr(workers_module, "_BEGIN_SECONDS", 0.05)
    with pytest.raises(TimeoutError):
        await workers.begin(JOBS)
    monkeypatch.undo()
    assert await ask(workers, tokenize("Hello"))


async def test_a_job_with_a_grammar_needs_a_process_that_was_forked_since_the_first_one_was_to_be_followed(
    workers,
):
    job = encode_job(TokenizerJobs.prepare_prompts, [["Say"], FieldTexts(grammar='root ::= "yes"')], {})
    assert isinstance(await ask(workers, job), GrammarsNeededError)
    (await workers.begin(FOLLOW)).close()
    assert (await ask(workers, job)).grammar


@pytest.mark.parametrize(
    ("path", "template", "error"),
    [(builtin_target().with_name("no.gguf"), None, ModelLoadError), (builtin_target(), "{{", ConfigError)],
)
async def test_a_model_or_template_that_cannot_be_used_is_the_answer_to_each_job(path, template, error):
    workers = Workers(TokenizerProgram(path, template, ConversationOptions(), RequestLimits()))
    assert isinstance(
        await asyncio.wait_for(ask(workers, encode_job(TokenizerJobs.describe, (), {})), 60), error
    )
    await asyncio.to_thread(workers.close)
