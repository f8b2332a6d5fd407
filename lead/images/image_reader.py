"""The ring's module for the seam `image_reader`: images with `--mmproj`."""

from pathlib import Path

from lead.http.images import ImageReader
from lead.images.image_encoder import ImageEncoder
from lead.images.messages import EncoderOptions
from lead.settings.lead_settings import LeadSettings
from shared.sandbox import MEGABYTE


def image_reader(settings: LeadSettings, model: Path) -> ImageReader:
    """Return the image reader for `model`; raises ConfigError."""
    images = settings.images
    assert images.mmproj
    options = EncoderOptions(
        model=model,
        projector=images.mmproj.absolute(),
        n_threads=settings.n_threads,
        max_tokens=images.image_max_tokens,
        offload=images.mmproj_offload,
        flash_attn=settings.compute.flash_attn,
    )
    return ImageEncoder(
        options,
        max_images=images.max_images,
        cache_bytes=images.image_cache * MEGABYTE,
        max_whole=settings.max_image_rows,
        log_options=[settings.log_level, *(["json"] if settings.log_json else [])],
    )
