import pytest

from chat.answer import ChatAnswer, Comparison, GenerationStats
from chat.wire import Chunk


def clock(*times):
    return iter(times).__next__


def chunk(content=None, **rest):
    return Chunk.model_validate({"choices": [{"delta": {"content": content}}], **rest})


def speculation(*tokens, n_drafted=0, n_accepted=0):
    return {
        "tokens": [{"text": text, "source": source} for text, source in tokens],
        "n_drafted": n_drafted,
        "n_accepted": n_accepted,
    }


def test_tokens_that_differ_from_the_content_are_ignored():
    (token,) = ChatAnswer(clock(0.0)).read(chunk("Once", speculation=speculation(("Twice", "back-1"))))
    assert (token.text, token.source) == ("Once", None)


def test_drafts_of_a_chunk_without_text_are_counted():
    answer = ChatAnswer(clock())
    assert answer.read(chunk(None, speculation=speculation(("\ufffd", "b"), n_drafted=3))) == []
    assert answer.stats.n_drafted == 3


@pytest.mark.parametrize(
    ("times", "chunks", "rate"),
    [
        ((5.0, 5.5, 6.0), [chunk(text) for text in "abc"], 2.0),
        (
            (5.0, 6.0),
            [chunk("abc", speculation=speculation(("a", "ngram"), ("b", "ngram"), ("c", None))), chunk("d")],
            1.0,
        ),
        ((5.0,), [chunk("a")], None),
    ],
    ids=["between the first and the last token", "without tokens of the first chunk", "of a single token"],
)
def test_without_timings_the_speed_is_measured(times, chunks, rate):
    answer = ChatAnswer(clock(*times))
    for each in chunks:
        answer.read(each)
    assert answer.stats.tokens_per_second == rate


def test_answers_without_a_time_do_not_raise_the_speed_of_all():
    total = GenerationStats(8, 2.0) + ChatAnswer(clock()).stats
    answer = ChatAnswer(clock())
    answer.read(chunk(timings={"predicted_n": 30, "predicted_per_second": 0}))
    total += answer.stats
    assert (total.n_tokens, total.tokens_per_second) == (38, 4.0)


def test_usage_counts_tokens_where_chunks_hold_several():
    answer = ChatAnswer(clock(0.0))
    answer.read(chunk("Once upon a time"))
    answer.read(Chunk.model_validate({"choices": [], "usage": {"completion_tokens": 4}}))
    assert answer.stats.n_tokens == 4


def test_seed_zero_is_reported():
    answer = ChatAnswer(clock())
    answer.read(chunk(seed=0))
    answer.read(chunk())
    assert answer.seed == 0


def answer(text="Once", rate=10.0, n_drafted=0):
    answer = ChatAnswer(lambda: 0.0)
    timings = {
        "predicted_n": 4,
        "predicted_per_second": rate,
        "draft_n": n_drafted,
        "draft_n_accepted": n_drafted,
    }
    answer.read(Chunk.model_validate({"choices": [{"delta": {"content": text}}], "timings": timings}))
    return answer


@pytest.mark.parametrize(
    ("one", "other", "sentence"),
    [
        (
            answer(n_drafted=3, rate=30),
            answer(),
            "3.00 times as fast with speculation. The texts are identical",
        ),
        (answer(n_drafted=3, rate=0), answer(), "The answers are too short"),
        (answer(), answer(), "No drafts were used"),
        (answer(n_drafted=3), answer(n_drafted=3), "The server used drafts both times"),
        (
            answer("Once upon"),
            answer("Once more"),
            "The texts DIFFER from character 6 on: 'upon' with speculation, 'more'",
        ),
        (answer("Once"), answer("Once more"), "character 5 on: '' with speculation, ' more' without"),
    ],
)
def test_the_verdict_compares_speeds_and_texts(one, other, sentence):
    assert sentence in Comparison(one, other).verdict
