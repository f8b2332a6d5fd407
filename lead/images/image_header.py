"""Reads the header of an image file, before any decoder sees it."""

import re
import struct
from dataclasses import dataclass

from shared.errors import RequestError

_PNG, _GIF, _BMP, _JPEG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", (b"GIF87a", b"GIF89a"), b"BM", b"\xff\xd8\xff"
_OTHERS = {
    "WebP": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
    "AVIF or HEIC": re.compile(rb".{4}ftyp(?:avi[fs]|hei[cfxms]|mif1)", re.DOTALL),
    "TIFF": re.compile(rb"II\*\0|MM\0\*"),
    "SVG": re.compile(rb"\s*<(?:\?xml|svg)"),
    "PDF": re.compile(rb"%PDF"),
}
_OLD_BMP_HEADER = 12
_SIZE_AT = {"png": ">16xII", "gif": "<6xHH", "old bmp": "<18xHH", "bmp": "<18xii"}
_FRAMES = {0xC0, 0xC1, 0xC2}
"""JPEG markers of frames that stb_image decodes: baseline, extended and progressive."""
_OTHER_FRAMES = set(range(0xC3, 0xD0)) - {0xC4, 0xC8, 0xCC}
_MAX_SEGMENTS = 10_000
_WITHOUT_LENGTH = {0x01, *range(0xD0, 0xD9)}


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """Upper limits: bytes of a file, pixels of an image, pixels of one side."""

    n_bytes: int = 20 << 20
    n_pixels: int = 50_000_000
    side: int = 16_384


def check_header(data: bytes, limits: ImageLimits) -> None:
    """Raise RequestError unless `data` is a PNG, JPEG, GIF or BMP within the limits."""
    if len(data) > limits.n_bytes:
        raise _refused(f"it has {len(data)} bytes, but the maximum is {limits.n_bytes}")
    try:
        width, height = _size(data)
    except (struct.error, IndexError):
        raise _refused("it is cut off") from None
    if width <= 0 or height <= 0:
        raise _refused("it has no pixels")
    if max(width, height) > limits.side or width * height > limits.n_pixels:
        raise _refused(
            f"it is {width}x{height}: at most {limits.side} pixels a side, and "
            f"{limits.n_pixels // 10**6} million in total, are supported"
        )


def _size(data: bytes) -> tuple[int, int]:
    """Return width and height; raises struct.error or IndexError if the file ends too early."""
    if data.startswith(_PNG):
        kind = "png"
    elif data.startswith(_GIF):
        kind = "gif"
    elif data.startswith(_BMP):
        kind = "old bmp" if struct.unpack_from("<14xI", data) == (_OLD_BMP_HEADER,) else "bmp"
    elif data.startswith(_JPEG):
        return _jpeg_size(data)
    else:
        raise _refused(_unknown(data))
    width, height = struct.unpack_from(_SIZE_AT[kind], data)
    return width, abs(height)


def _jpeg_size(data: bytes) -> tuple[int, int]:
    at = 2
    for _ in range(_MAX_SEGMENTS):
        at = _next_marker(data, at)
        while data[at] == 0xFF:  # noqa: PLR2004 - fill bytes
            at += 1
        marker = data[at]
        at += 1
        if marker in _FRAMES:
            height, width = struct.unpack_from(">3xHH", data, at)
            return width, height
        if marker in _OTHER_FRAMES:
            raise _refused("this kind of JPEG is not supported: send it as a PNG")
        if marker not in _WITHOUT_LENGTH:
            (length,) = struct.unpack_from(">H", data, at)
            at += max(length, 2)
    raise _refused("its header has no end")


def _next_marker(data: bytes, at: int) -> int:
    """Return the index of the next byte 0xff; raises IndexError. Decoders skip bytes between segments."""
    found = data.find(b"\xff", at)
    if found < 0:
        raise IndexError
    return found


def _unknown(data: bytes) -> str:
    found = next((name for name, pattern in _OTHERS.items() if pattern.match(data)), None)
    if not data:
        return "there is none"
    return f"{f'{found} is' if found else 'its format is'} not supported: send it as PNG or JPEG"


def _refused(reason: str) -> RequestError:
    return RequestError(f"messages: an image cannot be read: {reason}", "messages")
