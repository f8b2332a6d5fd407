import pytest
from gguf import GGUFWriter

from shared.errors import ModelLoadError
from shared.model_files import projector_file
from shared.model_files.projector_file import check_fits, nearest_projector, projector_beside
from tests.tiny_models import write_and_close

CHOICES = {
    "there is none": ("toy-Q8_0.gguf", ["toy-Q8_0.gguf"], None),
    "the only one": ("toy.gguf", ["toy.gguf", "mmproj-toy.gguf"], "mmproj-toy.gguf"),
    "the deepest": ("Q8_0/toy.gguf", ["mmproj-a.gguf", "Q8_0/mmproj-b.gguf"], "Q8_0/mmproj-b.gguf"),
    "none of another folder": ("Q8_0/toy.gguf", ["Q4_0/mmproj.gguf"], None),
    "of similar precision": ("a-Q8_0.gguf", ["mmproj-F16.gguf", "mmproj-Q8_0.gguf"], "mmproj-Q8_0.gguf"),
    "F16 before BF16": ("a-Q4_0.gguf", ["mmproj-BF16.gguf", "mmproj-F16.gguf"], "mmproj-F16.gguf"),
    "no other files": ("a.gguf", ["mmproj-a.safetensors"], None),
}


@pytest.mark.parametrize(("model", "names", "chosen"), CHOICES.values(), ids=CHOICES)
def test_the_nearest_projector_of_a_repository_is_chosen(model, names, chosen):
    assert nearest_projector(model, names) == chosen


@pytest.fixture(autouse=True)
def built(monkeypatch):
    monkeypatch.setattr(projector_file, "_is_built", lambda: True)


@pytest.fixture
def folder(tmp_path):
    """Writes models and projectors. Their architecture, or kind of projector, is given by name."""

    def write(files, inside="."):
        root = tmp_path / inside
        for name, kind in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            writer = GGUFWriter(root / name, "clip" if "mmproj" in name else kind)
            if "mmproj" in name:
                writer.add_string("clip.projector_type", kind)
                writer.add_uint32("clip.vision.image_size", 896)
                writer.add_uint32("clip.vision.patch_size", 14)
            write_and_close(writer)
        return root

    return write


def test_a_model_alone_in_its_folder_gets_the_projector_there(folder):
    root = folder({"big-Q4_0.gguf": "gemma3", "big-Q8_0.gguf": "gemma3", "mmproj-F16.gguf": "gemma3"})
    assert projector_beside(root / "big-Q8_0.gguf") == root / "mmproj-F16.gguf"


def test_among_several_models_names_say_whose_a_projector_is(folder):
    models = {"big-Q4_0.gguf": "qwen2vl", "other-Q4_0.gguf": "qwen2vl"}
    root = folder(models | {"mmproj-Big-f16.gguf": "qwen2vl_merger", "mmproj-f16.gguf": "qwen2vl_merger"})
    assert projector_beside(root / "big-Q4_0.gguf") == root / "mmproj-Big-f16.gguf"
    assert projector_beside(root / "other-Q4_0.gguf") is None


def test_in_the_hubs_cache_it_belongs_to_all_models_of_the_repository(folder):
    files = {"Q8_0/big-Q8_0.gguf": "gemma3", "small-Q8_0.gguf": "gemma3", "mmproj-F16.gguf": "gemma3"}
    root = folder(files, inside="models--a--b/snapshots/1")
    assert projector_beside(root / "Q8_0/big-Q8_0.gguf") == root / "mmproj-F16.gguf"


@pytest.mark.parametrize("inside", ["snapshots", "snapshots/new"])
def test_a_folder_may_be_called_as_those_of_the_hubs_cache_are(folder, inside):
    root = folder({"big.gguf": "gemma3", "mmproj.gguf": "gemma3"}, inside=inside)
    assert projector_beside(root / "big.gguf") == root / "mmproj.gguf"


@pytest.mark.parametrize(
    ("kind", "reason"), [("resampler", "kind 'resampler'"), ("qwen2vl_merger", "does not belong to")]
)
def test_one_that_cannot_be_used_is_named_and_the_model_reads_text(folder, caplog, kind, reason):
    root = folder({"big.gguf": "gemma3", "mmproj.gguf": kind})
    assert projector_beside(root / "big.gguf") is None
    assert "big.gguf runs without images" in caplog.text
    assert reason in caplog.text
    with pytest.raises(ModelLoadError, match=reason):
        check_fits(root / "big.gguf", root / "mmproj.gguf")


def test_one_whose_images_do_not_fit_into_a_batch_is_left_out(folder, caplog):
    root = folder({"big.gguf": "gemma3", "mmproj.gguf": "gemma3"})
    assert projector_beside(root / "big.gguf", 256) == root / "mmproj.gguf"
    assert projector_beside(root / "big.gguf", 255) is None
    assert "big.gguf runs without images: --ubatch-size 255" in caplog.text


def test_rows_that_are_decoded_one_by_one_fit_into_any_batch(folder):
    root = folder({"big.gguf": "qwen2vl", "mmproj.gguf": "qwen2vl_merger"})
    assert projector_beside(root / "big.gguf", 1) == root / "mmproj.gguf"


def test_without_the_library_for_images_a_model_reads_text(folder, caplog, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", "/nowhere")
    root = folder({"big.gguf": "gemma3", "mmproj.gguf": "gemma3"})
    assert projector_beside(root / "big.gguf") is None
    assert "make images" in caplog.text
