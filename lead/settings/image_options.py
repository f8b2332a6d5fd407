"""Options for models that read images, and limits on the images of clients."""

from pathlib import Path

from pydantic import Field

from shared.model_files.projector_file import kind_of
from shared.settings.model_options import FlashAttention
from shared.settings.options import OptionGroup
from shared.terminal import size_text

ENCODING_BYTES, WITHOUT_FLASH_BYTES = 128 << 20, 1200 << 20
"""What an image takes while it is encoded: measured for Gemma 3, with flash attention and without."""


class ImageOptions(OptionGroup):
    """Images; the ring `lead.images` reads them."""

    mmproj: Path | None = Field(
        None,
        description="path of the model's projector (mmproj-*.gguf), with which it sees images. They are read "
        "in a process of their own, and backs never get them. Not with --context-shift or --exact; `make "
        "images` builds what is needed",
    )
    mmproj_auto: bool = Field(
        True,
        description="read images with the projector that the repository of --hf-repo has, or beside a "
        "model of --models-dir; --no-mmproj: text only, whatever there is",
    )
    mmproj_offload: bool = Field(
        False,
        description="encode images on the first GPU, where the plan for the model leaves memory for it",
    )
    image_max_tokens: int = Field(
        0,
        ge=0,
        le=1 << 16,
        description="maximum number of tokens that an image takes, for models that choose it by the size of "
        "the image; 0: as the projector says",
    )
    max_images: int = Field(32, ge=1, le=4096, description="maximum number of images per request")
    image_cache: int = Field(
        256,
        ge=1,
        le=1 << 20,
        description="memory for encoded images, in MiB: those of requests that are being answered, and as "
        "many earlier ones as fit, so that no second question about an image has it encoded again",
    )

    def encoder_bytes(self, flash_attn: FlashAttention) -> int:
        """The memory of the process that encodes images. flash_attn: as the option of the model."""
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
        return f"{self.mmproj.name} ({kind}), {n_bytes} with up to {kept} of encoded images"
