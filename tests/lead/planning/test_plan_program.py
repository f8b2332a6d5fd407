"""`lead plan` with real models, in processes of its own."""

import json

import pytest

from bench.tiny_models import TinyModel, write_tiny_model
from lead.cli import main
from lead.engine.commands import Load, LoadDraft
from lead.planning.measurements import EngineTimes
from lead.planning.plan_program import remarks
from shared import cpus
from shared.models.builtin import builtin_draft, builtin_target
from shared.settings.model_options import ModelOptions
from tests.shared.models.conftest import checkpoint, conversion_cache, tokenizer  # noqa: F401 - fixtures
from tests.tiny_eagle import write_tiny_eagle

pytestmark = pytest.mark.real
SMALL = ("--threads", "1", "--ctx-size", "1024")
"""One thread: on a busy machine two wait for each other at every operation."""


@pytest.fixture(scope="module")
def tiny_heads(tmp_path_factory):
    """A model with heads for further tokens."""
    path = tmp_path_factory.mktemp("heads") / "qwen35.gguf"
    return write_tiny_model(TinyModel("qwen35", n_layers=5, settings={"nextn_predict_layers": 1}), path)


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs `lead plan` with arguments; returns what it prints."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["lead", "plan", *map(str, arguments), *SMALL])
        main()
        return capsys.readouterr().out

    return run


def two_cores():
    return ",".join(map(str, cpus.one_of_each_core()[:2]))


@pytest.mark.skipif(len(cpus.one_of_each_core()) < 2, reason="needs two cores")
def test_the_shipped_pair_is_measured_and_each_arrangement_predicted(run):
    plan = json.loads(
        run("--model", builtin_target(), "--draft-model", builtin_draft(), "--cpus", two_cores(), "--json")
    )
    assert [each["kind"] for each in plan["arrangements"]] == ["none", "engine", "split", "remote"]
    assert all(0 < each["low"] <= each["tokens_per_second"] * 1.05 for each in plan["arrangements"])
    acceptance = plan["engine"]["drafters"]["draft_model"]["acceptance"]
    assert 0.4 < acceptance["n_right"] / acceptance["n_positions"] < 1
    assert plan["engine"]["steps"].keys() >= {"1", "2", "4", "8"}
    assert plan["fastest"] in {each["arrangement"] for each in plan["arrangements"]}


def test_without_anything_that_drafts_it_says_so(run, tiny_model):
    said = run("--model", tiny_model("llama"))
    assert "Fastest here: no draft model" in said
    assert "name a draft model with --draft-model" in said


def test_heads_of_the_model_are_an_arrangement(run, tiny_heads):
    said = run("--model", tiny_heads, "--acceptance", "0.9")
    assert "the model's own heads (MTP)" in said
    assert "--acceptance says that 90% of its tokens are right" in said


def test_an_eagle_drafter_is_not_one_for_a_back(run, tiny_model, tmp_path):
    drafter = write_tiny_eagle(tmp_path / "eagle.gguf")
    plan = json.loads(run("--model", tiny_model("llama"), "--draft-model", drafter, "--json"))
    assert [each["kind"] for each in plan["arrangements"]] == ["none", "engine"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "missing.gguf"), "missing.gguf"),
        (("--model", __file__), "test_plan_program.py"),
        (("--model", builtin_target(), "--draft-model", "missing.gguf"), "missing.gguf"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_a_sentence(run, arguments, message):
    with pytest.raises(SystemExit, match=message) as ended:
        run(*arguments)
    assert str(ended.value).startswith("lead plan: ")


def test_a_machine_with_one_core_is_told_that_a_back_needs_another(tmp_path):
    draft = LoadDraft(model=tmp_path, options=ModelOptions(), n_most=4)
    load = Load(model=tmp_path, options=ModelOptions(), depth=0, draft=draft)
    times = EngineTimes({1: 0.05}, 0.0, {"draft_model": None})
    assert "one core" in remarks(times, load, [0], None)[0]
    assert "one core" not in remarks(times, load, [0, 1], None)[0]


def test_other_programs_that_compute_are_mentioned(tmp_path):
    load = Load(model=tmp_path, options=ModelOptions(), depth=0)
    assert any("kept 3.0 cores busy" in each for each in remarks(EngineTimes({1: 1.0}), load, [0], 3.0))
