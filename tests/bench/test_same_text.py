import json

import pytest

from bench import same_text
from lead.engine.sequence import VerifiedTokens


def run(*arguments):
    same_text.main(["--quick", *arguments])


def rows(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]


def test_each_kind_of_memory_answers_as_without_drafts(capsys):
    run("--architectures", "llama,gemma3,qwen35,jamba")
    found = rows(capsys)
    assert [row["memory"] for row in found] == ["attention", "windows", "rollback", "checkpoints"]
    for row in found:
        assert row["n_texts"] == row["n_equal"] == 3 * 2 * 3
        assert min(row["n_accepted"], row["n_rejected"], row["n_reused"]) > 0


def test_a_drafter_that_decides_what_the_text_is_is_noticed(capsys, monkeypatch):
    def believe(draft, choose, _end_tokens, _chosen):
        return VerifiedTokens([*draft, choose(len(draft))], len(draft))

    monkeypatch.setattr("lead.engine.sequence.verify", believe)
    with pytest.raises(SystemExit) as status:
        run("--architectures", "llama", "--rates", "0.5")
    assert status.value.code == 1
    assert rows(capsys)[0]["n_wrong"] > 0


def test_another_token_is_a_tie_if_only_the_last_bits_are_against_it(tiny_model):
    target = same_text.Target(tiny_model("llama"), 4, 1)
    (question,) = target.questions(1)
    chosen, other = question.answer[0], (question.answer[0] + 1) % 4000
    assert target.is_tie(question, 0, chosen, 0.0)
    assert not target.is_tie(question, 0, other, 0.01)
    assert target.is_tie(question, 0, other, 100.0)
    target.close()


def test_weights_that_overflow_show_nothing(capsys):
    run("--architectures", "rwkv7", "--sd", "1")
    captured = capsys.readouterr()
    assert "no numbers" in captured.err
    assert json.loads(captured.out.splitlines()[-1])["rows"] == []
