"""docs/troubleshooting.md contains each message word for word, so that a search finds it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
OTHERS = {"Failed to fetch"}
"""Messages of browsers."""


def messages():
    """The code of several words in the first cell of each table row."""
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("| ") and not line.startswith("| ---"):
            first = re.split(r"(?<!\\)\|", line)[1]
            yield from (
                code for code in re.findall(r"`([^`]+)`", first) if " " in code and code not in OTHERS
            )


@pytest.fixture(scope="module")
def source():
    """The source of all programs, with the strings joined that the formatter has split."""
    code = "\n".join(
        path.read_text("utf-8")
        for package in ("lead", "back", "chat", "shared", "lab")
        for path in sorted((ROOT / package).rglob("*.py"))
    )
    joined = re.sub(r"([\"'])\s*\n\s*f?([\"'])", "", code)
    return re.sub(r"{[^{}]*}", "…", joined).replace("%s", "…").replace("%d", "…")


def test_each_message_is_one_of_the_programs(source):
    parts = {part.strip(" '()") for message in messages() for part in message.split("…")}
    assert [part for part in sorted(parts) if part not in source] == []
