"""`lead models` lists, examines and deletes the models of a folder and of the hub's cache."""

import shutil
from dataclasses import replace

import pytest

from lead.engine import target_loading
from lead.router import catalog, models_program
from lead.router.hub_cache import CachedModel
from lead.router.memory_need import memory_need
from lead.settings.image_options import ENCODING_BYTES
from lead.settings.lead_settings import LeadSettings
from shared.llama import devices
from shared.llama.placement import CPU, Device
from shared.model_files.builtin import builtin_draft, builtin_target
from shared.model_files.hub import Hub
from tests.minilm import tiny_bert
from tests.tiny_projectors import write_tiny_projector


@pytest.fixture(autouse=True)
def hub(monkeypatch, tmp_path):
    """A hub with one model, which can be fetched. It records the files removed from its cache."""

    class StandIn(Hub):
        removed = []  # noqa: RUF012 - one for each test
        models = []  # noqa: RUF012
        with_projector = []  # noqa: RUF012

        def fetch(self, model, *, with_projector):
            path = tmp_path / "hub" / f"{model.quantization}.gguf"
            path.parent.mkdir(exist_ok=True)
            shutil.copy(builtin_draft(), path)
            self.with_projector.append(with_projector)
            self.models.append(CachedModel(model.repository, f"x-{model.quantization}.gguf", path))
            return path

    monkeypatch.setattr(models_program, "Hub", StandIn)
    monkeypatch.setattr(models_program, "remove_model", StandIn.removed.append)
    for module in (models_program, catalog):
        monkeypatch.setattr(module, "cached_models", lambda hub: hub.models)
    monkeypatch.setattr("lead.router.catalog.packaged_models", dict)
    return StandIn


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "models"
    path.mkdir()
    shutil.copy(builtin_target(), path / "big.gguf")
    shutil.copy(builtin_draft(), path / "small.gguf")
    return path


@pytest.fixture
def run(folder, capsys):
    """The output of `lead models …`."""

    def run(*arguments):
        models_program.main([*arguments, "--models-dir", str(folder)])
        return capsys.readouterr().out

    return run


def test_models_are_listed_with_size_and_architecture(run):
    header, big, small = run().splitlines()
    assert header.split() == ["name", "size", "architecture", "from"]
    assert big.split()[0] == "big"
    assert big.split()[2:4] == ["MB", "llama"]
    assert small.split()[-1] == "folder"


def test_where_there_are_none_it_says_how_to_get_one(run, folder):
    for path in folder.iterdir():
        path.unlink()
    said = run()
    assert said.startswith("no models found, except the small models that lead and back use without --model")
    assert "Download a model with `lead models pull" in said


def test_a_model_is_shown_with_its_context_memory_and_drafts(run):
    text = run("show", "big")
    assert "2048 tokens for one request; trained with 2048" in text
    assert "fits: " in text
    assert "small: yes, with the same vocabulary" in text


def test_what_is_no_draft_says_why(run):
    assert "big: no: with 6.28 MB it is too large for a draft model" in run("show", "small")


def test_options_of_the_models_file_count(run, folder):
    (folder / "models.toml").write_text("[big]\nctx-size = 256\n")
    assert "256 tokens for one request" in run("show", "big")


def test_the_length_of_texts_of_a_model_that_makes_vectors_is_the_option(run, folder):
    tiny_bert(folder / "bert.gguf", ["fox"], n_ctx=512)
    (folder / "models.toml").write_text("[bert]\nembedding-ctx-size = 256\n")
    assert "texts of up to 256 tokens" in run("show", "bert")


def test_a_model_of_the_hub_is_downloaded_and_then_listed(run):
    assert run("pull", "a/b:Q8_0").startswith("a/b:Q8_0: 1.01 MB, ")
    assert "a/b:Q8_0" in run()


def test_a_projector_comes_with_its_model_unless_images_are_not_wanted(run, hub):
    run("pull", "a/b:Q8_0")
    run("pull", "a/b:Q8_0", "--no-mmproj")
    assert hub.with_projector == [True, False]


@pytest.mark.usefixtures("libmtmd")
def test_what_a_model_sees_with_is_shown_and_counted(run, folder, tiny_model):
    def memory():
        (line,) = (line for line in run("show", "seeing").splitlines() if " on CPU" in line)
        return line

    (folder / "seeing").mkdir()
    shutil.copy(tiny_model("gemma3"), folder / "seeing" / "model.gguf")
    assert "images   none, text only" in run("show", "seeing")
    blind = memory()
    write_tiny_projector("gemma3", folder / "seeing" / "mmproj-F16.gguf")
    assert "mmproj-F16.gguf (gemma3)" in run("show", "seeing")
    assert memory() != blind


def test_a_model_of_the_hub_that_makes_vectors_takes_what_one_of_a_folder_takes(tmp_path, monkeypatch):
    path = tiny_bert(tmp_path / "bert.gguf", ["fox"])
    monkeypatch.setattr(Hub, "fetch", lambda _hub, _model, **_options: path)
    of_hub, of_folder = LeadSettings.from_options(hf_repo="a/b"), LeadSettings.from_options(model=path)
    assert memory_need(of_hub, {}) == memory_need(of_folder, {})


def on_a_gpu_that_shares_memory(monkeypatch):
    gpu, plan_target = Device("MTL0", "a GPU", 1 << 40, 1 << 40, is_shared=True), target_loading.plan_target

    def placed(*arguments):
        plan = plan_target(*arguments)
        return replace(plan, placement=replace(plan.placement, devices=[gpu]))

    monkeypatch.setattr(devices, "own_gpus", lambda: [gpu])
    monkeypatch.setattr(target_loading, "plan_target", placed)


@pytest.mark.parametrize("setting", [lambda _: None, on_a_gpu_that_shares_memory], ids=["cpu", "metal"])
def test_images_take_their_memory_once(tmp_path, monkeypatch, setting):
    setting(monkeypatch)
    (tmp_path / "mmproj.gguf").write_bytes(bytes(1000))
    options = {"model": builtin_target(), "cache_ram": 0}
    seeing = options | {"mmproj": tmp_path / "mmproj.gguf", "mmproj_offload": True, "image_cache": 50}
    text, images = (memory_need(LeadSettings.from_options(**each), {}).sizes for each in (options, seeing))
    assert images[CPU] - text[CPU] == 1000 + ENCODING_BYTES + (50 << 20)


def test_a_model_is_deleted_with_yes_only(run, folder, hub):
    with pytest.raises(SystemExit, match="Add --yes"):
        run("remove", "small")
    assert run("remove", "small", "--yes").startswith("small was deleted")
    assert not (folder / "small.gguf").exists()
    run("pull", "a/b:Q8_0")
    run("remove", "a/b:Q8_0", "--yes")
    assert [path.name for path in hub.removed] == ["Q8_0.gguf"]


def test_a_model_of_a_package_stays(run, monkeypatch):
    monkeypatch.setattr("lead.router.catalog.packaged_models", lambda: {"smollm2": builtin_draft()})
    with pytest.raises(SystemExit, match="Uninstall the package with pip"):
        run("remove", "smollm2", "--yes")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("show", "none"), "the model 'none' does not exist. Available models: big, small"),
        (("show",), "needs the NAME of a model"),
        (("pull", "nonsense"), "write it as USER/REPO"),
        (("remove", "none", "--yes"), "does not exist"),
    ],
)
def test_what_cannot_be_done_ends_with_a_sentence(run, arguments, reason, monkeypatch):
    monkeypatch.setattr("lead.router.models_program.on_hub", lambda *_: [])
    with pytest.raises(SystemExit, match=reason):
        run(*arguments)


def test_a_name_that_is_no_repository_is_answered_with_some(run, monkeypatch):
    monkeypatch.setattr("lead.router.models_program.on_hub", lambda *_: ["a/qwen3-GGUF", "b/qwen3-GGUF"])
    with pytest.raises(SystemExit, match=r"qwen3: did you mean a/qwen3-GGUF or b/qwen3-GGUF\?"):
        run("pull", "qwen3")
