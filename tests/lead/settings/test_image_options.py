import pytest

from lead.settings.image_options import ENCODING_BYTES, WITHOUT_FLASH_BYTES
from lead.settings.lead_settings import LeadSettings
from shared.llama.placement import FIRST_GPU
from shared.model_files.hub import Hub


def test_images_take_memory_for_the_projector_and_for_what_is_kept(tmp_path):
    projector = tmp_path / "mmproj.gguf"
    projector.write_bytes(bytes(1000))

    def memory(*options):
        return LeadSettings.from_command_line(["--image-cache", "2", *options]).beside_bytes

    n_bytes, asked = 1000 + ENCODING_BYTES, ("--mmproj", str(projector))
    assert memory(*asked) == {"CPU": (2 << 20) + n_bytes}
    assert memory(*asked, "--mmproj-offload") == {"CPU": 2 << 20, FIRST_GPU: n_bytes}
    more = WITHOUT_FLASH_BYTES - ENCODING_BYTES
    assert memory(*asked, "--flash-attn", "off") == {"CPU": (2 << 20) + n_bytes + more}
    assert memory() == memory("--mmproj", str(tmp_path / "none")) == {}


@pytest.mark.parametrize("other", ["--context-shift", "--exact"])
def test_what_images_cannot_be_combined_with_is_refused(other, refused):
    assert f"--mmproj: cannot be combined with {other}" in refused("--mmproj", "a.gguf", other)


def test_bodies_may_be_larger_with_images_unless_their_size_was_chosen():
    def maximum(*options):
        return LeadSettings.from_command_line(options).request_limits.max_body_bytes

    assert maximum("--mmproj", "a.gguf") == maximum("--models-dir", "models") > maximum() == 4 << 20
    assert maximum("--mmproj", "a.gguf", "--max-body-bytes", "5000") == 5000


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """The downloads from the hub: True if the projector was asked for. All models have a projector."""
    asked = []

    def fetch(_hub, _model, *, with_projector=False):
        asked.append(with_projector)
        return tmp_path / "model.gguf"

    monkeypatch.setattr(Hub, "fetch", fetch)
    monkeypatch.setattr(
        "lead.settings.lead_settings.projector_beside", lambda model, _: model.with_name("mmproj")
    )
    return asked


def located(*options):
    return LeadSettings.from_command_line(["-hf", "a/b", *options]).located().images.mmproj


def test_a_model_of_the_hub_sees_with_the_projector_of_its_repository(hub, tmp_path):
    assert located() == tmp_path / "mmproj"
    assert hub == [True]


@pytest.mark.parametrize("option", ["--no-mmproj", "--context-shift", "--exact"])
def test_where_images_are_not_wanted_or_cannot_be_read_no_projector_is_downloaded(hub, option):
    assert located(option) is None
    assert hub == [False]


def test_a_projector_that_was_named_goes_over_that_of_the_repository(hub, tmp_path):
    assert located("--mmproj", str(tmp_path / "other")) == tmp_path / "other"
    assert hub == [False]
