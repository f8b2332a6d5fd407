"""`lead convert`: writes a llama2.c checkpoint or a GPT-2 folder as a GGUF file."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field
from pydantic_settings import CliPositionalArg

from shared.convert.conversion import ConversionType
from shared.convert.converted_file import read_conversion
from shared.errors import ConfigError
from shared.exits import exiting_in_words, say
from shared.model_files.file_kind import parts_of
from shared.progress import progress_bar
from shared.settings.base import ProgramSettings


class ConvertSettings(ProgramSettings):
    """Write a llama2.c checkpoint, or GPT-2 from Hugging Face, as a GGUF file.

    `lead --model SOURCE` does the same and keeps the result in its cache.

        lead convert stories15M.bin stories15M.gguf
        lead convert gpt2/ gpt2.gguf --type q8_0
    """

    program = "lead convert"
    prefix = "LEAD_CONVERT_"

    source: CliPositionalArg[Path] = Field(
        description="a checkpoint (.bin), or a folder with config.json, model.safetensors (or shards), "
        "vocab.json and merges.txt"
    )
    destination: CliPositionalArg[Path] = Field(description="the GGUF file to write")
    type: ConversionType = Field(
        "auto", description="data type of the matrices; auto: the data type of the source"
    )
    tokenizer: Path | None = Field(
        None,
        description="tokenizer.bin of a checkpoint. Default: tokenizer.bin in the folder of the checkpoint",
    )


def main(arguments: Sequence[str]) -> None:
    """Run `lead convert`. Exits with status 1 and a message on failure."""
    settings = ConvertSettings.from_command_line(arguments)
    with exiting_in_words(settings.program):
        try:
            convert(settings)
        except KeyboardInterrupt:
            say(f"{settings.program}: canceled. Nothing was written")
            raise


def convert(settings: ConvertSettings) -> None:
    """Convert a model according to `settings`; raises ConfigError."""
    source, destination = settings.source, settings.destination
    conversion = read_conversion(source, settings.tokenizer)
    if conversion is None:
        parts_of(source)
        raise ConfigError(f"{source} is not a llama2.c checkpoint or a folder with GPT-2")
    if destination.is_dir() or (destination.exists() and destination.samefile(source)):
        raise ConfigError(f"{destination} cannot be written. Choose another GGUF file")
    with progress_bar(f"converting {conversion.name}") as progress:
        conversion.file(settings.type).write(destination, progress)
