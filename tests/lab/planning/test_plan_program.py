"""`lead plan` with real models."""

import contextlib
import json
from concurrent.futures import Future

import pytest

from lab.planning import plan_program
from lab.planning.measurements import EngineTimes
from lab.planning.plan_program import core_splits, remarks, sample_texts
from lead.cli import main
from lead.engine.load import Load, LoadDraft
from shared import cpus
from shared.convert.grow import Shape, grow
from shared.llama.vocabulary import Vocabulary
from shared.model_files.builtin import builtin_draft, builtin_target
from shared.settings.model_options import ModelOptions
from tests.tiny_eagle import write_tiny_eagle

SMALL = ("--threads", "1", "--ctx-size", "1024")
"""One thread: on a busy machine two threads wait for each other at every operation."""


class ThisProcess:
    """Replaces the executor of a `pinned_process`: runs calls at once, in this process."""

    def submit(self, call, *arguments):
        done = Future()
        done.set_result(call(*arguments))
        return done


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs `lead plan` with arguments; returns its output."""
    monkeypatch.setattr("lab.planning.arrangements._N_TOKENS", 64)
    monkeypatch.setattr("lab.planning.arrangements._N_SEEDS", 1)
    monkeypatch.setattr("lab.planning.arrangements._N_WARM_UP", 16)
    monkeypatch.setattr(plan_program, "_MIN_TOGETHER_S", 0.1)

    def run(*arguments, busy=0.0):
        monkeypatch.setattr(plan_program, "busy_cores", lambda: busy)
        monkeypatch.setattr("sys.argv", ["lead", "plan", *map(str, arguments), *SMALL])
        main()
        return capsys.readouterr().out

    return run


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr(plan_program, "pinned_process", lambda _: contextlib.nullcontext(ThisProcess()))
    in_turn = lambda call, items: list(map(call, items))  # noqa: E731 - short
    monkeypatch.setattr(plan_program, "parallel_map", lambda _: contextlib.nullcontext(in_turn))


@pytest.mark.real
@pytest.mark.skipif(len(cpus.one_of_each_core()) < 2, reason="needs two cores")
def test_two_models_are_measured_and_each_arrangement_predicted(run, tiny_model):
    model = tiny_model("llama")
    cores = ",".join(map(str, cpus.one_of_each_core()[:2]))
    plan = json.loads(run("--model", model, "--draft-model", model, "--cpus", cores, "--json"))
    kinds = [each["kind"] for each in plan["arrangements"]]
    assert kinds == ["none", "engine", "split", "remote", "remote", "remote"]
    assert all(each["tokens_per_second"] > 0 for each in plan["arrangements"])
    (measured,) = plan["measured"]
    acceptance = measured["engine"]["drafters"]["draft_model"]["acceptance"]
    assert acceptance["n_right"] == acceptance["n_positions"] > 0  # both models are the same
    assert measured["engine"]["steps"].keys() >= {"1", "2", "4", "8"}
    assert plan["fastest"] in {each["arrangement"] for each in plan["arrangements"]}


@pytest.mark.usefixtures("here")
def test_several_draft_models_are_compared_at_each_place(run, tmp_path):
    """The shipped pair, and a draft model with twice the layers: its tokens take longer, and are the same."""
    grown = tmp_path / "twice.gguf"
    grow(builtin_draft(), grown, Shape(width=128, n_layers=4, n_heads=4, n_feed_forward=256), "q8_0")
    models = ("--model", builtin_target(), "--draft-model", builtin_draft(), "--draft-model", grown)
    plan = json.loads(run(*models, "--backs", "1", "--cpus", "0", "--json"))
    names = [builtin_draft().name, "twice.gguf"]
    placed = [(each["kind"], each["draft_model"]) for each in plan["arrangements"]]
    assert placed == [("none", ""), *((kind, name) for kind in ("engine", "remote") for name in names)]
    shipped, twice = (each["engine"]["drafters"]["draft_model"] for each in plan["measured"])
    rates = [each["acceptance"]["n_right"] / each["acceptance"]["n_positions"] for each in (shipped, twice)]
    assert rates[1] == pytest.approx(rates[0], abs=0.1)  # a busy machine tries fewer positions
    assert len(plan["best_by_place"]) == 2
    grown_in = [str(grown) in each["commands"][-1] for each in plan["arrangements"]]
    assert grown_in == [False, False, True, False, True]


@pytest.mark.usefixtures("here")
def test_without_anything_that_drafts_it_says_so(run, tiny_model):
    said = run("--model", tiny_model("llama"))
    assert "Fastest here: no draft model" in said
    assert "Set --draft-model" in said


@pytest.mark.usefixtures("here")
def test_while_other_programs_compute_the_verdict_is_doubtful(run, tiny_model):
    assert "Fastest here, if these figures hold: no draft" in run("--model", tiny_model("llama"), busy=3.0)


@pytest.mark.usefixtures("here")
def test_heads_of_the_model_are_an_arrangement(run, tiny_with_heads):
    said = run("--model", tiny_with_heads("qwen35"), "--acceptance", "0.9")
    assert "the model's own heads (MTP)" in said
    assert "--acceptance says that 90% of its tokens are accepted" in said


@pytest.mark.usefixtures("here")
def test_an_eagle_drafter_is_not_one_for_a_back(run, tiny_model, tmp_path):
    drafter = write_tiny_eagle(tmp_path / "eagle.gguf")
    plan = json.loads(run("--model", tiny_model("llama"), "--draft-model", drafter, "--json"))
    assert [each["kind"] for each in plan["arrangements"]] == ["none", "engine"]


@pytest.mark.usefixtures("here")
def test_hardware_that_is_not_here_needs_no_model(run, monkeypatch):
    monkeypatch.setattr("lab.planning.hardware_plan._N_TOKENS", 16)
    said = run("--device", "glm-air")
    assert "GPUs with CUDA, GLM-4.5-Air mixture: a step of one token takes 5.9 ms" in said


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "missing.gguf"), "missing.gguf"),
        (("--model", __file__), "test_plan_program.py"),
        (("--model", builtin_target(), "--draft-model", "missing.gguf"), "missing.gguf"),
        (("--device", "nosuch"), "rtx4090"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_a_sentence(run, arguments, message):
    with pytest.raises(SystemExit, match=message) as ended:
        run(*arguments)
    assert str(ended.value).startswith("lead plan: ")


def test_a_machine_with_one_core_is_told_that_a_back_needs_another(tmp_path):
    draft = LoadDraft(model=tmp_path, options=ModelOptions(), n_max=4)
    load = Load(model=tmp_path, options=ModelOptions(), draft=draft)
    times = EngineTimes({1: 0.05}, 0.0, {"draft_model": None})
    assert "one core" in remarks(times, load, [0], 0.0)[0]
    assert "one core" not in remarks(times, load, [0, 1], 0.0)[0]


def test_other_programs_that_compute_are_mentioned(tmp_path):
    load = Load(model=tmp_path, options=ModelOptions())
    assert any("used 3.0 cores" in each for each in remarks(EngineTimes({1: 1.0}), load, [0], 3.0))


@pytest.mark.parametrize(
    ("n_cores", "n_backs"), [(1, []), (2, [1]), (3, [1, 2]), (4, [1, 2]), (8, [1, 2, 4]), (64, [1, 16, 32])]
)
def test_the_back_gets_one_core_or_a_quarter_or_half_of_them(n_cores, n_backs):
    splits = core_splits(range(n_cores))
    assert [len(split.back_cpus) for split in splits] == n_backs
    assert all(sorted(split.lead_cpus + split.back_cpus) == list(range(n_cores)) for split in splits)


def test_a_lead_on_a_gpu_needs_one_core():
    (split,) = core_splits([0, 2, 4, 6], lead_is_offloaded=True)
    assert (split.lead_cpus, split.back_cpus) == ((0,), (2, 4, 6))


def test_a_chat_model_is_asked_in_its_template():
    texts = sample_texts(Vocabulary.load(builtin_target()))
    assert all(text.startswith("<|im_start|>user\n") for text in texts)
    assert all(text.endswith("<|im_start|>assistant\n") for text in texts)


def test_another_model_goes_on_with_texts(tiny_model):
    texts = sample_texts(Vocabulary.load(tiny_model("llama")))
    assert not any("<|" in text for text in texts)
    assert len(texts) == len(set(texts)) > 2


def test_a_template_that_refuses_a_question_is_not_used(tiny_model):
    vocabulary = Vocabulary.load(tiny_model("llama"))
    refusing = "{{ raise_exception('no') }}"
    assert sample_texts(vocabulary, refusing) == sample_texts(vocabulary)
