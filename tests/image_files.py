"""Good image files, and a few hundred that are meant to do harm."""

import itertools
import random
import struct
import zlib


def png(width, height, seed=0, *, claims=None):
    """A picture of noise. claims: false values of width and height in its header."""
    rng = random.Random(seed)
    pixels = b"".join(b"\0" + rng.randbytes(3 * width) for _ in range(height))
    return png_of(zlib.compress(pixels, 1), *(claims or (width, height)))


def png_of(data, width, height, *, depth=8, color=2):
    """A PNG file around any compressed data."""
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", data), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def bmp(width, height, *, claims=None, bits=24):
    row = -(-width * 3 // 4) * 4
    pixels = bytes(row * height)
    shown = claims or (width, height)
    header = struct.pack("<IiiHHIIiiII", 40, *shown, 1, bits, 0, len(pixels), 0, 0, 0, 0)
    return struct.pack("<2sIHHI", b"BM", 54 + len(pixels), 0, 0, 54) + header + pixels


def gif(width, height, *, claims=None):
    """A GIF of one color. Its image data resets the table before each pixel."""
    codes = [4, *itertools.chain.from_iterable((0, 4) for _ in range(width * height)), 5]
    bits, n = 0, 0
    for code in codes:
        bits |= code << n
        n += 3
    data = bits.to_bytes(-(-n // 8), "little")
    blocks = b"".join(
        bytes([len(part)]) + part for part in (data[i : i + 255] for i in range(0, len(data), 255))
    )
    screen = struct.pack("<6sHHBBB", b"GIF89a", *(claims or (width, height)), 0x81, 0, 0)
    image = struct.pack("<BHHHHB", 0x2C, 0, 0, width, height, 0)
    return screen + bytes(12) + image + b"\2" + blocks + b"\0;"


def jpeg(width, height, *, marker=0xC0, before=b"", after=b"\xff\xd9"):
    """A JPEG header without the tables that a decoder needs."""
    frame = struct.pack(">BHHB", 8, height, width, 3) + b"\1\x11\0\2\x11\0\3\x11\0"
    return (
        b"\xff\xd8" + before + b"\xff" + bytes([marker]) + struct.pack(">H", 2 + len(frame)) + frame + after
    )


def hostile(seed=0):
    """(name, file) of files that are not pictures, or are too large."""
    rng = random.Random(seed)
    whole = {"png": png(40, 30), "bmp": bmp(40, 30), "gif": gif(12, 9), "jpeg": jpeg(40, 30)}
    for kind, data in whole.items():
        for _ in range(25):
            yield (
                f"{kind} cut off",
                data[: rng.randrange(len(data) - 1) if kind != "gif" else rng.randrange(40)],
            )
        for size in ((60_000, 60_000), (65_535, 1), (1, 65_535), (0, 0), (0, 5), (5, 0), (16_384, 16_384)):
            make = {"png": png, "bmp": bmp, "gif": gif}.get(kind)
            yield f"{kind} claims {size}", make(4, 4, claims=size) if make else jpeg(*size)
    yield "png bomb", png_of(zlib.compress(bytes(1 << 28), 9), 7000, 7000)
    yield "png bomb behind a small header", png_of(zlib.compress(bytes(1 << 28), 9), 2, 2)
    for depth in range(17):
        data = zlib.compress(bytes(64))
        yield "png of a strange depth", png_of(data, 4, 4, depth=depth, color=rng.randrange(7))
    for _ in range(40):
        yield "png with random data", png_of(rng.randbytes(rng.randrange(1, 900)), 30, 20)
    for marker in range(0xC0, 0xE0):
        yield "jpeg of a strange kind", jpeg(40, 30, marker=marker, after=rng.randbytes(200))
    for _ in range(30):
        tables = b"".join(
            b"\xff" + bytes([rng.choice((0xC4, 0xDB, 0xDA, 0xDD, 0xE0))]) + b"\0\x43" + rng.randbytes(65)
            for _ in range(6)
        )
        yield "jpeg with random tables", jpeg(40, 30, before=tables, after=rng.randbytes(300))
    yield "jpeg of nothing but fill bytes", b"\xff\xd8" + b"\xff" * 300_000
    yield "jpeg of nothing but segments", b"\xff\xd8\xff" + b"\xe0\0\2\xff" * 300_000
    magic = (
        *(b"RIFF\0\0\0\0WEBP", b"\0\0\0\x20ftypavif", b"II*\0", b"%PDF-1.7", b"<svg/>", b"ID3", b"fLaC"),
        *(b"8BPS\0\1", b"#?RADIANCE", b"P6\n9 9\n255\n", b"\0\0\2\0"),
        *(b"RIFF\0\0\0\0WAVE", b"", b"\0", b"GGUF"),
    )
    for start in magic:
        yield f"not a picture: {start[:12]!r}", start + (rng.randbytes(500) if start else b"")
    for _ in range(40):
        yield "noise", rng.randbytes(rng.randrange(2000))
    yield "21 MB", bytes(21 << 20)
