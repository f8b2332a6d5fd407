"""Values of options that are one of several."""

from typing import Literal

Print = Literal["none", "accepted", "all"]
SpecDecodeDetail = Literal["none", "summary", "detailed"]
