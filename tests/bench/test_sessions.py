"""Recorded sessions are replayed as they were recorded, and compared turn by turn."""

import httpx
import pytest

from bench import models
from bench.sessions import DRAFTED, PEER, PLAIN, Replayed, Turn, ask, chosen_turns, summarize
from lead.benchmark.measured_answer import StreamedAnswer
from lead.benchmark.running_lead import running_lead
from lead.settings.lead_settings import LeadSettings
from shared.errors import ConfigError
from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import builtin_target


def session(source, identity, *texts):
    messages = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]
    return {
        "source": source,
        "source_session_id": identity,
        "messages": messages,
        "n_messages": len(messages),
        "reference_response": "the end",
    }


def test_a_turn_has_what_was_recorded_before_it():
    first, last = chosen_turns([session("codex", "a", "Look.", "I did.", "And now?")], 1, 9, 100)
    assert [message["content"] for message in first.messages] == ["Look."]
    assert (first.answer, last.answer, last.number) == ("I did.", "the end", 1)
    assert last.n_characters == len("Look.I did.And now?the end")


def test_the_longest_that_is_short_enough_is_replayed_once():
    """Most are recorded at several lengths."""
    recorded = [
        session("codex", "a", "x" * 10),
        session("codex", "a", "x" * 10, "y", "z"),
        session("codex", "b", "x" * 1000),
        session("claude-code", "c", "x"),
    ]
    turns = list(chosen_turns(recorded, 1, 9, 100))
    assert [(turn.source, turn.number) for turn in turns] == [("claude-code", 0), ("codex", 0), ("codex", 1)]


def replayed(way, turn, to_first, n_read=0):
    return Replayed(way, turn, StreamedAnswer(0.0, [to_first, to_first + 1.0], n_read=n_read), 11)


def test_first_tokens_are_compared_turn_by_turn():
    turns = [Turn(0, number, "codex", [], "") for number in range(3)]
    runs = [replayed(PLAIN, turns[0], 9.0), replayed(PEER, turns[0], 1.0)]
    runs += [replayed(DRAFTED, turn, first, 5) for turn, first in zip(turns, (8.0, 1.0, 1.0), strict=True)]
    runs += [replayed(PEER, turn, first, 7) for turn, first in zip(turns[1:], (2.0, 4.0), strict=True)]
    rows = {row["way"]: row for row in summarize(runs, [PLAIN, DRAFTED, PEER])}
    assert rows[DRAFTED]["later_over_peer"] == pytest.approx((1 / 2 + 1 / 4) / 2)
    assert (rows[DRAFTED]["first_ms"], rows[DRAFTED]["later_first_ms"]) == (8000, 1000)
    assert (rows[DRAFTED]["n_read_again"], rows[PEER]["n_read_again"]) == (10, 14)
    assert rows[DRAFTED]["tokens_per_second"] == pytest.approx(10.0)


def test_another_answer_than_the_recorded_one_is_an_error():
    content = 'data: {"choices": [{"delta": {"content": "something else"}}]}\n\n'
    headers = {"content-type": "text/event-stream"}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=content, headers=headers))
    turn = Turn(0, 0, "claude-code", [], "what was recorded")
    with (
        httpx.Client(base_url="http://peer", transport=transport) as http,
        pytest.raises(ConfigError, match="answered other than what was recorded"),
    ):
        ask(http, turn, [1, 2], is_lead=False)


def test_a_target_takes_longer_texts_than_it_was_trained_with(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "_cache", lambda: tmp_path)
    before = builtin_target().read_bytes()
    longer = models.with_context(builtin_target(), 12345)
    assert Vocabulary.load(longer).info.n_ctx_train == 12345
    assert builtin_target().read_bytes() == before


@pytest.mark.real
def test_each_api_of_a_lead_says_what_was_recorded(monkeypatch):
    monkeypatch.setattr("lead.benchmark.running_lead._SETTLE_SECONDS", 0.0)
    model = builtin_target()
    texts = ("Hello!", "Purple bicycles sing 42 songs.", "And then?")
    recorded = [session("codex", "a", *texts), session("claude-code", "b", *texts)]
    settings = LeadSettings.from_command_line(["--model", str(model), "--threads", "1", "--ctx-size", "1024"])
    vocabulary = Vocabulary.load(model)
    with running_lead(settings) as http:
        for turn in chosen_turns(recorded, 1, 9, 1000):
            tokens = vocabulary.tokenize(turn.answer, add_special=False, parse_special=False)
            answer = ask(http, turn, tokens, is_lead=True)
            assert answer.text.strip() == turn.answer
            assert answer.n_read > 0
