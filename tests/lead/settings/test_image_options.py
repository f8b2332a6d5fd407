import pytest

from lead.settings.image_options import ImageOptions
from lead.settings.lead_settings import LeadSettings


def test_images_take_memory_for_the_projector_and_for_what_is_kept(tmp_path):
    projector = tmp_path / "mmproj.gguf"
    projector.write_bytes(bytes(1000))
    assert ImageOptions(mmproj=projector, image_cache=2).n_bytes == (2 << 20) + 1000
    assert ImageOptions().n_bytes == ImageOptions(mmproj=tmp_path / "none").n_bytes == 0


@pytest.mark.parametrize("other", ["--context-shift", "--exact"])
def test_what_images_cannot_be_combined_with_is_refused(other, refused):
    assert f"--mmproj: cannot be combined with {other}" in refused("--mmproj", "a.gguf", other)


def test_bodies_may_be_larger_with_images_unless_their_size_was_chosen():
    def maximum(*options):
        return LeadSettings.from_command_line(options).request_limits.max_body_bytes

    assert maximum("--mmproj", "a.gguf") > maximum() == 4 << 20
    assert maximum("--mmproj", "a.gguf", "--max-body-bytes", "5000") == 5000
