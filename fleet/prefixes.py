"""The beginnings of prompts that each lead probably has in its cache, because they were routed to it.

Pure: knows neither Ray nor the network.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

_BLOCK = 512
"""Characters; shorter beginnings are read again in no time."""
_MAX_BLOCKS = 256
_FIELDS = ("model", "instructions", "system", "tools", "messages", "prompt", "input")
_MAX_BRACKETS = 1 << 16
"""The maximum number of brackets in a body, whose key is not checked yet: arrays and objects take much more
memory than their text.
"""
_MAX_AHEAD = 2
"""A lead with this many more running requests than the idlest one is busy, whatever it has cached."""

Blocks = tuple[bytes, ...]


def blocks_of(body: bytes) -> Blocks:
    """Return hashes of the prefixes of a request's prompt, at each multiple of the block length.

    Empty for a body that is short, is not a JSON object, or is too expensive to parse.
    """
    if body.count(b"[") + body.count(b"{") > _MAX_BRACKETS:
        return ()
    try:
        fields = from_json(body)  # to a bounded depth
    except ValueError:
        return ()
    text = _text(fields) if isinstance(fields, dict) else ""
    hashed, blocks = hashlib.blake2b(digest_size=8), []
    for start in range(0, min(len(text) // _BLOCK, _MAX_BLOCKS) * _BLOCK, _BLOCK):
        hashed.update(text[start : start + _BLOCK].encode())
        blocks.append(hashed.digest())
    return tuple(blocks)


def _text(fields: dict[str, Any]) -> str:
    """Return the text of a request in the order of its prompt."""
    return "".join(json.dumps(fields[name], ensure_ascii=False) for name in _FIELDS if name in fields)


class SentPrefixes:
    """Hashes of the latest prompts that were sent to each lead."""

    def __init__(self, n_max: int = 1 << 18) -> None:
        self._n_max = n_max
        self._sent: OrderedDict[tuple[bytes, str], None] = OrderedDict()

    def note(self, blocks: Blocks, lead: str) -> None:
        """Record that a request with these blocks was sent to `lead`."""
        for block in blocks:
            self._sent[block, lead] = None
            self._sent.move_to_end((block, lead))
        while len(self._sent) > self._n_max:
            self._sent.popitem(last=False)

    def depth(self, blocks: Blocks, lead: str) -> int:
        """Return the number of these blocks, from the first on, that `lead` has received before."""
        return next((i for i, block in enumerate(blocks) if (block, lead) not in self._sent), len(blocks))


def ranks(depths: Mapping[str, int], running: Mapping[str, int]) -> list[list[str]]:
    """Group the leads, best group first; within a group the least busy lead is to be chosen.

    Leads with the longest known prefix of the prompt come first, unless they are much busier than others.
    `depths`: number of known blocks of each lead; `running`: its number of requests.
    """
    if not depths:
        return []
    idlest, longest = min(running[lead] for lead in depths), max(depths.values())
    preferred = [
        lead for lead, n in depths.items() if n == longest > 0 and running[lead] < idlest + _MAX_AHEAD
    ]
    others = [lead for lead in depths if lead not in preferred]
    return [group for group in (preferred, others) if group]
