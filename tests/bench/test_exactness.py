from bench.exactness import Text, count, follow_up, requests


def test_requests_are_of_all_temperatures_and_some_have_a_long_beginning():
    bodies = requests(24, {"max_tokens": 10}, seed=1)
    assert len(bodies) == 24
    assert {body["temperature"] for body in bodies} == {0.0, 0.8, 1.0}
    assert {len(body["messages"]) for body in bodies} == {1, 2}
    assert bodies == requests(24, {"max_tokens": 10}, seed=1)


def test_the_next_turn_repeats_what_was_generated():
    body = {"messages": [{"role": "user", "content": "a"}], "seed": 1}
    assert [turn["content"] for turn in follow_up(body, "b")["messages"]][:2] == ["a", "b"]


def test_other_bits_are_counted_where_the_text_is_the_same():
    alone = [Text("a", (0.1,)), Text("b", (0.2,)), Text("c", (0.3,))]
    later = [Text("a", (0.1,)), Text("b", (0.25,)), Text("x", (0.4,))]
    assert count(alone, later) == {"n_texts": 3, "n_tokens": 3, "n_other_text": 1, "n_other_bits": 2}
