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
        description="serve all GGUF files of this folder, and models of the Hugging Face cache, instead of "
        "one --model: a request's model is started when it is asked for. Options of this command line are "
        "those of each of them",
    )
    models_file: Path | None = Field(
        None,
        description="TOML file with options of models: [defaults] for all, and a table for each. Without it, "
        f"{MODELS_FILE} in --models-dir, if it exists",
    )
    models_max: int = Field(
        4, ge=0, le=1024, description="number of models of --models-dir in memory at the same time; 0: any"
    )
    models_memory: int = Field(
        0,
        ge=0,
        le=1 << 30,
        description="host memory for the models of --models-dir together, in MiB; 0: what is free",
    )
