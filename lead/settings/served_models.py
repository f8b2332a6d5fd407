"""Options for a lead that serves several models, each in its own process."""

from pathlib import Path
from typing import Final

from pydantic import Field

from shared.settings.options import OptionGroup

MODELS_FILE: Final = "models.toml"


class ServedModels(OptionGroup):
    """Options for several models.

    Without `models_dir`, one model is served, and the other options have no effect.
    """

    models_dir: Path | None = Field(
        None,
        description="serve all GGUF files of this folder and all models of the Hugging Face cache, "
        "instead of one --model. A request loads the model that it names. Options on this "
        "command line apply to each model",
    )
    models_file: Path | None = Field(
        None,
        description="TOML file with options of models: a table for each model, and [defaults] for all. "
        f"Default: {MODELS_FILE} in --models-dir, if it exists",
    )
    models_max: int = Field(
        4, ge=0, le=1024, description="maximum number of models of --models-dir in memory; 0: no limit"
    )
    models_memory: int = Field(
        0,
        ge=0,
        le=1 << 30,
        description="maximum host memory for all models of --models-dir, in MiB; 0: the free memory",
    )
