import asyncio
import itertools
import signal

import pytest

from lead.settings.conversation import ConversationOptions
from lead.settings.limits import RequestLimits
from lead.tokenizer import pool as pool_module
from lead.tokenizer.fair_queue import Client
from lead.tokenizer.jobs import GrammarsNeededError, TokenizerJobs, decode, encode
from lead.tokenizer.pool import TokenizerPool
from lead.tokenizer.tokenizer_program import TokenizerProgram
from lead.tokenizer.workers import WorkerDiedError
from shared.errors import ModelLoadError, QueueFullError, RequestError, ServerError, UnavailableError
from shared.sandbox import FOLLOW, JOBS

LONG = "x" * 100_000
PROGRAM = TokenizerProgram("model.gguf", None, ConversationOptions(), RequestLimits())


class FakeWorker:
    """Answers with the text of the job, unless a script says otherwise."""

    def __init__(self, server):
        self._server = server
        self.has_ended = False

    async def ask(self, message):
        _, (text,), _ = decode(message)
        self._server.asked.append(text)
        what = self._server.script.get(text, text)
        if what == "hang":
            await asyncio.Event().wait()
        if isinstance(what, list):  # one after the other
            what = what.pop(0)
        if isinstance(what, signal.Signals):
            raise WorkerDiedError(-what)
        if what == "grow":
            self.has_ended = True
        if what == "lost":
            self._server.script[text] = text
            self._server.n_failures = 2
            raise WorkerDiedError(None)
        return what

    def kill(self):
        self._server.n_killed += 1

    def close(self):
        self._server.n_busy -= 1


class FakeServer:
    """All `Workers` of one test."""

    def __init__(self):
        self.script = {}
        self.asked = []
        self.n_killed = 0
        self.n_begun = 0
        self.n_busy = 0
        self.n_failures = 0
        self.n_closed = 0
        self.kinds = []
        self.may_follow = asyncio.Event()
        self.may_follow.set()

    def start(self, _program):
        return self

    async def begin(self, kind):
        self.kinds.append(kind)
        if kind == FOLLOW:
            await self.may_follow.wait()
        if self.n_failures:
            self.n_failures -= 1
            raise ConnectionError
        self.n_begun += 1
        self.n_busy += 1
        return FakeWorker(self)

    def close(self):
        self.n_closed += 1


@pytest.fixture
def server(monkeypatch):
    """Workers have unlimited time, unless a test limits it: this process may be slow."""
    monkeypatch.setattr(pool_module, "_QUICK_SECONDS", 60.0)
    monkeypatch.setattr(pool_module, "_GRACE_SECONDS", 0.01)
    monkeypatch.setattr(pool_module, "_HUNG_SECONDS", 60.0)
    return FakeServer()


@pytest.fixture
async def pool(server):
    pool = TokenizerPool(PROGRAM, server.start)
    running = asyncio.ensure_future(pool.run_processes())
    yield pool
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert server.n_busy == 0


@pytest.fixture
def _no_delays(monkeypatch):
    monkeypatch.setattr(pool_module, "Backoff", lambda *_: itertools.repeat(0.0))


ONE = Client("one")


def ask(pool, text, client=ONE):
    return asyncio.ensure_future(pool.run(client, TokenizerJobs.count_prompt, text))


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


async def test_one_worker_answers_one_job_after_the_other(pool, server):
    assert [await ask(pool, text) for text in "abc"] == ["a", "b", "c"]
    assert server.n_begun == 1, "the lane for long jobs rests until there is one"


async def test_without_jobs_for_a_while_all_processes_end_until_there_is_one(pool, server):
    await ask(pool, "before")
    await pool.rest()
    await settle()
    assert (server.n_busy, server.n_closed) == (0, 1)
    assert await ask(pool, "after") == "after"
    assert server.n_busy == 1, "the other lane still rests"


async def test_a_job_that_comes_as_processes_end_is_done(pool):
    asked = ask(pool, "a")
    await pool.rest()
    assert await asked == "a"


async def test_a_worker_that_has_grown_is_replaced(pool, server):
    assert [await ask(pool, text) for text in ("grow", "next")] == ["grow", "next"]
    assert server.n_begun == 2


async def test_a_long_job_does_not_delay_a_short_one(pool, server):
    server.script[LONG] = "hang"
    long = ask(pool, LONG)
    assert await ask(pool, "short") == "short"
    assert not long.done()
    long.cancel()


async def test_a_short_job_that_takes_long_is_done_again_in_the_other_lane(pool, server):
    pool._quick.slice_seconds = 0.01
    server.script["slow"] = "hang"
    slow = ask(pool, "slow")
    assert await ask(pool, "next") == "next"
    await settle()
    assert sorted(server.asked) == ["next", "slow", "slow"]
    slow.cancel()


@pytest.mark.parametrize(
    ("death", "error", "message"),
    [
        (signal.SIGSEGV, RequestError, "repeats one character too often"),
        (signal.SIGABRT, RequestError, "too much memory"),
        (signal.SIGPROF, RequestError, "4.0 s of CPU time"),
    ],
)
async def test_only_the_request_that_kills_a_worker_fails(pool, server, death, error, message):
    server.script["bad"] = death
    bad, good = ask(pool, "bad"), ask(pool, "good")
    with pytest.raises(error, match=message):
        await bad
    assert await good == "good"


async def test_a_worker_that_hangs_is_killed(pool, server, monkeypatch):
    monkeypatch.setattr(pool_module, "_HUNG_SECONDS", 0.01)
    server.script[LONG] = "hang"
    with pytest.raises(UnavailableError, match="try again"):
        await ask(pool, LONG)
    assert server.n_killed == 1


@pytest.mark.parametrize("error", [RequestError("no", "prompt", "code"), ServerError("a bug")])
async def test_an_error_that_is_answered_is_raised(pool, server, error):
    server.script["bad"] = decode(encode(error))
    with pytest.raises(type(error), match=str(error)) as raised:
        await ask(pool, "bad")
    assert vars(raised.value) == vars(error)


async def test_a_model_that_cannot_be_read_from_the_first_is_what_is_wrong(pool, server):
    server.script["a"] = ModelLoadError("no model")
    with pytest.raises(ModelLoadError, match="no model"):
        await ask(pool, "a")


async def test_a_model_that_cannot_be_read_any_more_is_read_anew_for_the_next_job(pool, server):
    await ask(pool, "before")
    server.script["a"] = ModelLoadError("no model")
    with pytest.raises(UnavailableError, match="cannot be read at the moment"):
        await ask(pool, "a")
    assert server.n_closed == 1
    assert await ask(pool, "after") == "after"


async def test_of_jobs_that_cannot_read_the_model_together_one_has_it_read_anew_and_none_waits(pool, server):
    await ask(pool, "before")
    server.script |= dict.fromkeys("abcd", ModelLoadError("no model"))
    answers = await asyncio.gather(*(ask(pool, text) for text in "abcd"), return_exceptions=True)
    assert [type(answer) for answer in answers] == [UnavailableError] * 4
    assert server.n_closed == 1


async def test_jobs_that_wait_are_done_also_if_the_pool_is_to_rest_and_a_worker_has_ended(pool, server):
    server.script["a"] = "grow"
    waiting = [ask(pool, "a"), ask(pool, "b")]
    await asyncio.sleep(0)
    await pool.rest()
    assert await asyncio.gather(*waiting) == ["grow", "b"]


async def test_a_job_whose_client_left_is_stopped(pool, server):
    server.script[LONG] = "hang"
    job = ask(pool, LONG)
    await settle()
    job.cancel()
    server.script[LONG] = "answer"
    assert await ask(pool, LONG) == "answer"
    assert server.n_killed == 1


async def test_a_waiting_job_whose_client_left_is_never_begun(pool, server):
    server.script[LONG] = "hang"
    running = ask(pool, LONG)
    await settle()
    waiting = ask(pool, LONG + "2")
    await settle()
    waiting.cancel()
    running.cancel()
    assert await ask(pool, LONG + "3") == LONG + "3"
    assert LONG + "2" not in server.asked


async def test_more_waiting_jobs_than_the_queue_holds_are_refused(server, monkeypatch):
    monkeypatch.setattr(pool_module, "_MAX_WAITING", 2)
    pool = TokenizerPool(PROGRAM, server.start)
    waiting = [ask(pool, text) for text in "abc"]
    with pytest.raises(QueueFullError, match="try again"):
        await waiting[2]
    for each in waiting:
        each.cancel()


async def test_a_job_whose_worker_was_killed_from_outside_is_done_again(pool, server):
    server.script["job"] = [signal.SIGKILL, signal.SIGKILL, "done"]
    assert await ask(pool, "job") == "done"


async def test_a_job_whose_worker_is_always_killed_is_given_up(pool, server):
    server.script["job"] = signal.SIGKILL
    with pytest.raises(UnavailableError, match="try again"):
        await ask(pool, "job")
    assert server.asked == ["job"] * 3


@pytest.mark.usefixtures("_no_delays")
async def test_a_job_that_is_lost_with_all_processes_is_done_again(pool, server):
    server.script["job"] = "lost"
    assert await ask(pool, "job") == "job"
    assert server.asked == ["job", "job"]
    assert server.n_failures == 0


async def test_a_job_with_the_first_grammar_is_done_again_by_a_process_that_can_check_it(pool, server):
    server.script["grammar"] = [GrammarsNeededError(), GrammarsNeededError(), "checked"]
    assert await ask(pool, "grammar") == "checked"
    assert server.kinds == [JOBS, FOLLOW, JOBS, FOLLOW]


async def test_other_jobs_do_not_wait_until_grammars_can_be_checked(pool, server):
    server.script["grammar"] = [GrammarsNeededError(), "checked"]
    server.may_follow.clear()
    job = ask(pool, "grammar")
    await settle()
    assert await ask(pool, "text") == "text"
    server.may_follow.set()
    assert await job == "checked"
