"""Growing a model: a small llama-architecture GGUF becomes a larger one that computes the same function.

The real weights sit in the top-left corner of each larger matrix, and whatever is added is multiplied by
zero further on (`layout` says how). One step of the result costs what its shape costs, while what it says
is known from the small model: a stand-in for a big model, small enough to ship as a few megabytes.
"""

from shared.models.gguf_file import Progress, Quantization
from shared.models.grow.growth import VERSION, grow
from shared.models.grow.source import Shape

__all__ = ["VERSION", "Progress", "Quantization", "Shape", "grow"]
