import importlib.metadata
import re
from pathlib import Path

import lead
from shared.version import VERSION


def test_it_is_that_of_the_package():
    assert importlib.metadata.version("llama-duo") == VERSION


def test_nobody_else_reads_it():
    root = Path(lead.__file__).parent.parent
    folders = ("lead", "back", "chat", "shared", "fleet", "lab")
    found = [
        path
        for folder in folders
        for path in (root / folder).rglob("*.py")
        if re.search(r"metadata\.version\(.llama-duo", path.read_text())
    ]
    assert found == [root / "shared" / "version.py"]
