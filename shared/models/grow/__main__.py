"""`python -m shared.models.grow SOURCE DESTINATION --width … --layers … --heads … --feed-forward …`."""

import sys
from pathlib import Path

from pydantic import Field
from pydantic_settings import CliPositionalArg

from shared.errors import ConfigError
from shared.models.gguf_file import progress_bar
from shared.models.grow import Quantization, Shape, grow
from shared.settings.base import ProgramSettings


class GrowSettings(ProgramSettings):
    """Turn a small llama-architecture GGUF into a larger one that computes the same function."""

    program = "grow"
    prefix = "GROW_"

    source: CliPositionalArg[Path] = Field(description="the GGUF file to grow")
    destination: CliPositionalArg[Path] = Field(description="the GGUF file to write")
    width: int = Field(description="of the residual stream (n_embd)")
    layers: int = Field(description="number of layers")
    heads: int = Field(description="number of query heads; key/value heads follow")
    feed_forward: int = Field(description="hidden units of each feed-forward part")
    type: Quantization = Field("f16", description="how matrices are stored")

    @property
    def shape(self) -> Shape:
        return Shape(self.width, self.layers, self.heads, self.feed_forward)


def main() -> None:
    settings = GrowSettings.from_command_line()
    try:
        with progress_bar(settings.destination.name) as progress:
            grow(settings.source, settings.destination, settings.shape, settings.type, progress)
    except ConfigError as error:
        sys.exit(f"grow: {error}")
    except KeyboardInterrupt:
        sys.exit("grow: cancelled, nothing was written")


if __name__ == "__main__":
    main()
