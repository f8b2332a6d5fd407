import pytest

from lead.images.image_header import ImageLimits, check_header
from shared.errors import RequestError
from tests.image_files import bmp, gif, jpeg, png

LIMITS = ImageLimits(n_bytes=4000, n_pixels=600, side=50)
EXIF = b"\xff\xe1\0\x08Exif\0\0"


@pytest.mark.parametrize(
    "data", [png(30, 20), bmp(30, 20), gif(30, 20), jpeg(30, 20), jpeg(30, 20, before=EXIF + b"\xff\xff")]
)
def test_a_picture_within_the_limits_passes(data):
    check_header(data, LIMITS)


@pytest.mark.parametrize("make", [png, bmp, gif])
def test_a_header_that_claims_too_much_is_refused_whatever_follows(make):
    with pytest.raises(RequestError, match="it is 30x21"):
        check_header(make(3, 2, claims=(30, 21)), LIMITS)
    with pytest.raises(RequestError, match="at most 50 pixels a side"):
        check_header(make(3, 2, claims=(51, 2)), LIMITS)


def test_the_rows_of_a_bmp_may_be_in_either_order():
    check_header(bmp(3, 2, claims=(3, -2)), LIMITS)
    with pytest.raises(RequestError, match="no pixels"):
        check_header(bmp(3, 2, claims=(-3, 2)), LIMITS)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "there is none"),
        (b"hello", "its format is not supported: send it as PNG or JPEG"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "WebP is not supported: send it as PNG or JPEG"),
        (png(3, 2)[:20], "cut off"),
        (jpeg(3, 2)[:6], "cut off"),
        (jpeg(0, 2), "no pixels"),
        (jpeg(3, 2, marker=0xC9), "rare kind"),
        (b"\xff\xd8\xff" + b"\xe0\0\2\xff" * 20_000, "4000"),
        (bytes(4001), "it has 4001 bytes"),
    ],
)
def test_other_files_are_refused_in_a_sentence(data, said):
    with pytest.raises(RequestError, match=said):
        check_header(data, LIMITS)


def test_a_jpeg_of_segments_alone_is_not_read_to_its_end():
    with pytest.raises(RequestError, match="no end"):
        check_header(b"\xff\xd8\xff" + b"\xe0\0\2\xff" * 20_000, ImageLimits())
