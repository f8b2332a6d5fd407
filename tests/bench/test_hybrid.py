"""A hybrid model against a plain one, in small."""

import json

import pytest

from bench.hybrid import Chat, drafted_per_second, main
from shared.llama.model import Model
from shared.settings.model_options import ModelOptions

SMALL = ["--prompt", "200", "--answer", "8", "--question", "8", "--ctx-size", "512", "--repeats", "1"]


def test_ratios_follow_from_the_rows(tiny_model, capsys):
    paths = ["--models", str(tiny_model("qwen35")), "--plain", str(tiny_model("llama"))]
    main([*paths, *SMALL, "--rounds", "3", "--steps", "5"])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    plain, hybrid = result["rows"]
    assert (hybrid["memory"], plain["memory"]) == ("8 tokens", "any")
    assert hybrid["ratios"]["departing"] == hybrid["departing"] / plain["departing"]
    assert min(hybrid["ratios"].values()) > 0


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "qwen35", "jamba"])
@pytest.mark.parametrize("departing", [True, False])
def test_a_second_turn_reads_no_more_than_answer_and_question(tiny_model, architecture, departing):
    model = Model(tiny_model(architecture), ModelOptions(threads=1, ctx_size=512, parallel=1))
    decoded = []
    decode = model.decode
    model.decode = lambda spans: decoded.extend(len(span.tokens) for span in spans) or decode(spans)
    chat = Chat(model, 1)
    chat.begin(200, 8)
    decoded.clear()
    chat.go_on(8, 1, departing=departing)
    model.close()
    assert sum(decoded) <= 8 + (8 + 8 if departing else 1)


def test_a_back_drafts_again_after_each_rejection(tiny_model):
    model = Model(tiny_model("jamba"), ModelOptions(threads=1, ctx_size=512, parallel=1), 1, 10)
    assert drafted_per_second(model, 3, 1) > 0
    model.close()
