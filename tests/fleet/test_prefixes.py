import json

from fleet.prefixes import SentPrefixes, blocks_of, ranks

LONG = "The quick brown fox jumps over the lazy dog. " * 40


def chat(*contents, **fields):
    messages = [{"role": "user", "content": content} for content in contents]
    return json.dumps({**fields, "messages": messages}).encode()


def n_common(one, other):
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def test_a_conversation_that_goes_on_has_the_same_beginning():
    first, second = blocks_of(chat(LONG, temperature=0)), blocks_of(chat(LONG, "And then?", temperature=1))
    assert len(first) >= 3
    assert n_common(first, second) == len(first)


def test_other_prompts_have_nothing_in_common():
    assert n_common(blocks_of(chat("A" + LONG)), blocks_of(chat("B" + LONG))) == 0


def test_every_api_s_prompt_counts():
    assert all(blocks_of(json.dumps({field: LONG}).encode()) for field in ("prompt", "input", "system"))


NO_REQUESTS = {
    "empty": b"",
    "no text": b"\xff\x00",
    "a list": b"[1]",
    "a text": b'"x"',
    "no fields": b"{}",
    "a short prompt": chat("short"),
    "half a surrogate pair": b'{"prompt": "' + b"\\ud800" * 600 + b'"}',
    "too deep": b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "never closed": b"[" * 200_000,
    "many containers": b'{"prompt": [' + b"[]," * 100_000 + b"[]]}",
}


def test_what_is_short_or_no_request_has_no_beginning():
    assert {name: blocks_of(body) for name, body in NO_REQUESTS.items()} == dict.fromkeys(NO_REQUESTS, ())


def test_a_lead_has_what_was_sent_to_it():
    prefixes, blocks = SentPrefixes(), (b"1", b"2", b"3")
    prefixes.note(blocks[:2], "a")
    assert (prefixes.depth(blocks, "a"), prefixes.depth(blocks, "b")) == (2, 0)


def test_the_oldest_is_forgotten_first():
    prefixes = SentPrefixes(n_max=2)
    prefixes.note((b"1", b"2"), "a")
    prefixes.note((b"1",), "a")
    prefixes.note((b"3",), "a")
    assert [prefixes.depth((block,), "a") for block in (b"1", b"2", b"3")] == [1, 0, 1]


def test_the_longest_beginning_comes_first():
    assert ranks({"a": 1, "b": 3, "c": 0}, {"a": 0, "b": 1, "c": 0}) == [["b"], ["a", "c"]]


def test_a_busy_lead_is_not_preferred_for_its_cache():
    assert ranks({"a": 5, "b": 0}, {"a": 2, "b": 0}) == [["a", "b"]]
