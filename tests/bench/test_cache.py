import json

import pytest

from bench.cache import CacheBench, main
from shared.llama.model import Model
from shared.models.builtin import builtin_target
from shared.settings.model_options import ModelOptions


@pytest.fixture
def model():
    model = Model(builtin_target(), ModelOptions(ctx_size=512, parallel=2, threads=1))
    model.counts = []
    decode = model.decode

    def counted(spans):
        model.counts.append([len(span.tokens) for span in spans])
        return decode(spans)

    model.decode = counted
    yield model
    model.close()


def test_a_cached_text_reads_only_what_is_new(model):
    assert CacheBench(model, n_tokens=3, n_new=4).cached([40]) > 0
    assert model.counts == [[36], [4], [1], [1]]


def test_without_reuse_each_request_reads_its_text(model):
    CacheBench(model, n_tokens=3, n_new=4).no_reuse([40])
    assert model.counts == [[40], [1], [1]]


def test_without_a_cache_each_token_reads_its_text(model):
    CacheBench(model, n_tokens=3, n_new=4, n_reread=3).no_cache([40])
    assert model.counts == [[40], [41], [42]]


def test_several_texts_generate_together(model):
    CacheBench(model, n_tokens=3, n_new=4).no_reuse([20, 40])
    assert model.counts == [[20], [40], [1, 1], [1, 1]]


@pytest.mark.usefixtures("_one_thread")
def test_one_text_and_eight_are_measured_at_each_length(tiny_model, capsys):
    sizes = ("--lengths", "24,32", "--tokens", "2", "--new", "2", "--repeats", "1")
    main(["--model", str(tiny_model("llama")), *sizes])
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert [(row["n_texts"], row["length"]) for row in rows] == [(1, 24), (1, 32), (8, 24), (8, 32)]
    assert all(row["over_no_reuse"] == row["cached"] / row["no_reuse"] for row in rows)
