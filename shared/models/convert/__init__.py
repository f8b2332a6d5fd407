"""Reading models of other projects: llama2.c checkpoints and GPT-2 in Hugging Face folders become GGUF files.

`read_conversion` recognises a source and checks all that its headers say; `Conversion.file` is the GGUF file
to write; `conversion_cache` keeps converted models for `--model`.
"""

from shared.models.convert.conversion import Conversion, ConversionType
from shared.models.convert.recognition import read_conversion

__all__ = ["Conversion", "ConversionType", "read_conversion"]
