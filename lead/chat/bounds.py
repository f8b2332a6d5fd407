"""Bounds on the lists and objects of a request, so that an invalid one costs no more than a valid one.

pydantic otherwise validates all elements and keeps an error for each of them and each member of a union:
a body of 4 MB took a minute and gigabytes.
"""

from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema

MAX_MESSAGES = 10_000
"""Messages of a conversation, or parts of one message."""
MAX_TOOLS = 4096
"""The most that --max-tools can allow."""
MAX_STOPS = 1024
"""The most that --max-stops can allow."""
MAX_PROMPTS = 4096
"""The most that --max-prompts can allow."""
MAX_PROMPT_ELEMENTS = 1 << 20
"""Of a prompt: token ids, or texts and ids in turn."""


@dataclass(frozen=True, slots=True)
class AtMost:
    """In `Annotated[list[…], AtMost(n)]`, or of a dict: at most `n` elements.

    At most one more is validated, and the first that is not valid ends it.
    """

    n: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The schema of the list or dict, with both bounds."""
        schema: Any = handler(source)
        schema |= {"max_length": self.n, "fail_fast": True}
        bounded: CoreSchema = schema
        return bounded
