"""The types of options with a fixed set of values."""

from typing import Literal

Print = Literal["none", "accepted", "all"]
SpecDecodeDetail = Literal["none", "summary", "detailed"]
