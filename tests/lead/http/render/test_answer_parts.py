import pytest

from lead.engine.events import PromptProgress, TokenProbabilities
from lead.engine.speculation.constants import MAX_DEPTH
from lead.engine_client.answer_stats import AnswerStats, VerifiedDraft
from lead.http.answers import AnswerEnd
from lead.http.render.answer_parts import spec_decode_metrics, timings
from tests.lead.http.event_streams import events

CHAT, TEXT, NATIVE = "/v1/chat/completions", "/v1/completions", "/completion"
MESSAGES = {"messages": [{"role": "user", "content": "hi"}]}


def asking(url):
    return MESSAGES if url == CHAT else {"prompt": "x"}


@pytest.fixture
def said(lead):
    """Two tokens, each with its own and another token's log-probability; returns their ids."""
    a, b = lead.tokens("a")[0], lead.tokens("b")[0]
    lead.engine.steps = [
        ([token], {"probabilities": [TokenProbabilities(chosen=-0.5, top=[(token, -0.5), (b, -1.5)])]})
        for token in (a, b)
    ]
    return a, b


def flat(chunks):
    return [choice for chunk in chunks if isinstance(chunk, dict) for choice in chunk.get("choices", [])]


async def test_logprobs_of_a_chat_have_openais_shape_and_llama_servers_ids(lead, client, said):
    body = (await client.post(CHAT, json=MESSAGES | {"logprobs": True, "top_logprobs": 2})).json()
    first, second = body["choices"][0]["logprobs"]["content"]
    a, b = said
    assert (first["id"], first["token"], first["bytes"], first["logprob"]) == (a, "a", [97], -0.5)
    assert [other["id"] for other in first["top_logprobs"]] == [a, b]
    assert (second["id"], second["bytes"]) == (b, [98])
    assert lead.engine.submitted[0].n_probs == 2


async def test_a_streamed_chat_reports_each_token_once(client, said):
    response = await client.post(CHAT, json=MESSAGES | {"logprobs": True, "stream": True})
    told = [
        entry for choice in flat(events(response)) for entry in (choice["logprobs"] or {}).get("content", [])
    ]
    assert [entry["id"] for entry in told] == list(said)


@pytest.mark.usefixtures("said")
async def test_logprobs_of_a_completion_have_openais_older_shape(lead, client):
    body = (await client.post(TEXT, json={"prompt": "x", "logprobs": 2})).json()
    assert body["choices"][0]["logprobs"] == {
        "tokens": ["a", "b"],
        "token_logprobs": [-0.5, -0.5],
        "top_logprobs": [{"a": -0.5, "b": -1.5}, {"b": -1.5}],
        "text_offset": [0, 1],
    }
    assert lead.engine.submitted[0].n_probs == 2


@pytest.mark.usefixtures("said")
async def test_text_offsets_continue_from_chunk_to_chunk(client):
    response = await client.post(TEXT, json={"prompt": "x", "logprobs": 0, "stream": True})
    told = [choice["logprobs"] for choice in flat(events(response)) if choice["logprobs"]]
    assert [offset for logprobs in told for offset in logprobs["text_offset"]] == [0, 1]


@pytest.mark.parametrize(
    ("given", "names"), [(False, ("logprob", "top_logprobs")), (True, ("prob", "top_probs"))]
)
async def test_native_probabilities_have_llama_servers_shape(client, said, given, names):
    ask = {"prompt": "x", "n_probs": 2, "post_sampling_probs": given}
    told = (await client.post(NATIVE, json=ask)).json()["completion_probabilities"]
    assert [entry["id"] for entry in told] == list(said)
    assert told[0].keys() == {"id", "token", "bytes", *names}


@pytest.mark.parametrize("url", [CHAT, TEXT, NATIVE])
async def test_every_chunk_has_timings_on_request(lead, client, url):
    lead.will_say("one two")
    ask = asking(url) | {"stream": True, "timings_per_token": True}
    chunks = [chunk for chunk in events(await client.post(url, json=ask)) if "timings" in chunk]
    assert chunks[0]["timings"]["predicted_n"] == 1


@pytest.mark.parametrize("url", [CHAT, TEXT, NATIVE])
async def test_the_prompts_progress_comes_before_the_text(lead, client, url):
    lead.will_say("x")
    create = lead.sequences.create

    def creating(*args, **more):
        sequence = create(*args, **more)
        told = PromptProgress(sequence=sequence.id, n_processed=5, n_total=9, n_cached=2)
        lead.sequences.apply(told, 1.0)
        return sequence

    lead.sequences.create = creating
    ask = asking(url) | {"stream": True, "return_progress": True}
    told = [
        chunk["prompt_progress"]
        for chunk in events(await client.post(url, json=ask))
        if "prompt_progress" in chunk
    ]
    assert told == [{"total": 9, "cache": 2, "processed": 5, "time_ms": 0.0}]


async def test_the_prompt_counts_once_for_several_answers(lead, client):
    lead.will_say("x")
    one = (await client.post(TEXT, json={"prompt": "Once upon"})).json()["usage"]
    three = (await client.post(TEXT, json={"prompt": "Once upon", "n": 3})).json()["usage"]
    assert three["prompt_tokens"] == one["prompt_tokens"]
    assert three["completion_tokens"] == 3 * one["completion_tokens"]


async def test_an_echo_precedes_the_text(lead, client):
    lead.will_say(" a time")
    body = (await client.post(TEXT, json={"prompt": "Once upon", "echo": True})).json()
    assert body["choices"][0]["text"] == "Once upon a time"


REGENERATED = AnswerStats(
    n_prompt=50, n_cached=49, n_generated=40, n_first=17, prompt_seconds=0.0125, generation_seconds=0.5
)
"""The statistics of a prompt that was in the cache, so that the first step had a draft."""


def test_tokens_of_the_first_step_count_for_the_prompt():
    found = timings(REGENERATED)
    assert (found["predicted_n"], found["predicted_ms"], found["predicted_per_second"]) == (40, 500.0, 46.0)
    assert found["predicted_per_token_ms"] == 500.0 / 23
    assert (found["prompt_n"], found["prompt_ms"], found["prompt_per_second"]) == (1, 12.5, 80.0)


def test_an_answer_of_one_step_has_no_rate():
    found = timings(AnswerStats(50, 49, n_generated=3, n_first=3, prompt_seconds=0.0125))
    assert found["predicted_ms"] == found["predicted_per_second"] == found["predicted_per_token_ms"] == 0


DRAFTS = (VerifiedDraft(3, 3), VerifiedDraft(3, 0), VerifiedDraft(2, 1))


def end(*drafts):
    return AnswerEnd("stop", 1, 0, None, AnswerStats(5, 0, 8), drafts)


def of_one(*drafts, detail="summary"):
    return spec_decode_metrics([end(*drafts)], detail)["metrics"]["speculative_decoding"]


def test_a_summary_counts_steps_by_what_they_accepted():
    summary = of_one(*DRAFTS)
    assert summary.pop("mean_acceptance_length") == pytest.approx(1 + 4 / 3)
    assert summary.pop("draft_acceptance_rate") == pytest.approx(4 / 8)
    assert summary == {
        "acceptance_histogram": [1, 1, 0, 1] + [0] * (MAX_DEPTH - 3),
        "acceptance_histogram_by_draft_length": {"2": [0, 1, 0], "3": [1, 0, 0, 1]},
        "num_spec_steps": 3,
        "num_accepted_draft_tokens": 4,
        "num_draft_tokens": 8,
        "num_spec_tokens": MAX_DEPTH,
    }


def test_details_are_those_of_each_step_in_order():
    detailed = of_one(*DRAFTS, detail="detailed")
    assert (detailed["per_step_accepted"], detailed["per_step_drafted"]) == ([3, 0, 1], [3, 3, 2])


def test_without_drafts_all_is_zero():
    summary = of_one()
    assert (summary["mean_acceptance_length"], summary["draft_acceptance_rate"]) == (1.0, 0.0)
    assert not any(summary["acceptance_histogram"])


def test_they_are_null_for_several_answers_and_missing_unless_wanted():
    assert spec_decode_metrics([end(), end()], "summary") == {"metrics": {"speculative_decoding": None}}
    assert spec_decode_metrics([end()], "none") == {}
