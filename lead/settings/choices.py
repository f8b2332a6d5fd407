"""What some options may be set to, for those who read them."""

from typing import Literal

Print = Literal["none", "accepted", "all"]
SpecDecodeDetail = Literal["none", "summary", "detailed"]
