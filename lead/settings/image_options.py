"""Options for models that read images, and limits on the images of clients."""

from pathlib import Path

from pydantic import Field

from shared.model_files.projector_file import kind_of
from shared.settings.model_options import FlashAttention
from shared.settings.options import OptionGroup
from shared.terminal import size_text

ENCODING_BYTES, WITHOUT_FLASH_BYTES = 128 << 20, 1200 << 20
"""The bytes for encoding an image, measured for Gemma 3: with flash attention, and without."""


class ImageOptions(OptionGroup):
    """Options for images in requests, which the ring `lead.images` reads."""

    mmproj: Path | None = Field(
        None,
        description="path of the model's projector (mmproj-*.gguf), for images in requests. A separate "
        "process reads the images, and backs never get them. Needs `make images`. Cannot be "
        "combined with --context-shift or --exact",
    )
    mmproj_auto: bool = Field(
        True,
        description="use the projector in the repository of --hf-repo or beside a model of --models-dir; "
        "--no-mmproj: text only",
    )
    mmproj_offload: bool = Field(
        False,
        description="encode images on the first GPU if it has enough free memory",
    )
    image_max_tokens: int = Field(
        0,
        ge=0,
        le=1 << 16,
        description="maximum number of tokens of an image, for models that choose it by image size; 0: the "
        "projector's value",
    )
    max_images: int = Field(32, ge=1, le=4096, description="maximum number of images per request")
    image_cache: int = Field(
        256,
        ge=1,
        le=1 << 20,
        description="memory for encoded images, in MiB. It holds the images of running requests and recent "
        "images, so that another question about an image does not encode it again",
    )

    def encoder_bytes(self, flash_attn: FlashAttention) -> int:
        """Return the memory of the process that encodes images. flash_attn: the --flash-attn of the model."""
        if not self._is_there:
            return 0
        assert self.mmproj
        return self.mmproj.stat().st_size + (WITHOUT_FLASH_BYTES if flash_attn == "off" else ENCODING_BYTES)

    @property
    def cache_bytes(self) -> int:
        """The host memory for encoded images."""
        return (self.image_cache << 20) if self._is_there else 0

    @property
    def _is_there(self) -> bool:
        return self.mmproj is not None and self.mmproj.is_file()

    def describe(self) -> str:
        """Return the projector as text for people; empty if the model reads only text. Raises
        ModelLoadError.
        """
        if self.mmproj is None:
            return ""
        kind, kept = kind_of(self.mmproj), size_text(self.cache_bytes)
        n_bytes = size_text(self.encoder_bytes("auto") + self.cache_bytes)
        return f"{self.mmproj.name} ({kind}), {n_bytes}, including up to {kept} for encoded images"
