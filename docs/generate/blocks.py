"""Generated blocks in pages that are otherwise written by hand.

<!-- begin NAME: written by `make docs` -->
…
<!-- end NAME -->
"""

import re
from collections.abc import Callable, Mapping

Blocks = Mapping[str, Callable[[], str]]
"""What each block holds, by its name."""

_BLOCK = re.compile(
    r"(?P<begin><!-- begin (?P<name>[\w-]+): written by `make docs` -->\n)"
    r".*?"
    r"(?P<end><!-- end (?P=name) -->)",
    re.DOTALL,
)


class UnknownBlockError(Exception):
    """A page has a block that no generator writes."""


def fill(page: str, blocks: Blocks) -> str:
    """`page` with the content of its blocks renewed; raises UnknownBlockError."""

    def renew(match: re.Match[str]) -> str:
        if match["name"] not in blocks:
            raise UnknownBlockError(f"no generator writes the block {match['name']!r}")
        return f"{match['begin']}\n{blocks[match['name']]().strip()}\n\n{match['end']}"

    return _BLOCK.sub(renew, page)


def fenced(language: str, text: str) -> str:
    """A code block."""
    return f"```{language}\n{text.strip()}\n```"


def table(header: list[str], rows: list[list[str]]) -> str:
    """A table; what stands in cells is escaped as far as tables need it."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
