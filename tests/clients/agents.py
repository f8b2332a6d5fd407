"""Agents of other projects: their folders, how docs/recipes.md starts them, a model's turns for a task."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RECIPES = HERE.parents[1] / "docs/recipes.md"
URL, KEY = "https://gpu:5555", "api.key"
"""The address and the key file in the recipes."""

BROKEN, MENDED = "    return a - b\n", "    return a + b\n"
FILES = {
    "calc.py": "def add(a, b):\n" + BROKEN,
    "test_calc.py": """\
import unittest

from calc import add


class AddTest(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(2, 3), 5)
""",
}
"""The files of the task."""
RUN_TEST = "python3 -m unittest"
ANSWER = "The sum was a difference; the test passes now."

Call = tuple[str, Mapping[str, Any]]
_PATCH = f"""\
apply_patch <<'EOF'
*** Begin Patch
*** Update File: calc.py
@@
 def add(a, b):
-{BROKEN}+{MENDED}*** End Patch
EOF
"""
_BLOCK = f"""\
calc.py
```python
<<<<<<< SEARCH
{BROKEN}=======
{MENDED}>>>>>>> REPLACE
```
"""


@dataclass(frozen=True)
class Turn:
    """A model's turn once all of `seen` is in its prompt. `{work}` in arguments is the folder's path."""

    seen: Sequence[str]
    text: str = ""
    calls: Sequence[Call] = ()

    def calls_in(self, work: Path) -> list[Call]:
        return [(name, _filled(arguments, str(work))) for name, arguments in self.calls]


def _filled(value: Any, work: str) -> Any:
    if isinstance(value, dict):
        return {name: _filled(each, work) for name, each in value.items()}
    return value.replace("{work}", work) if isinstance(value, str) else value


def _turns(about: str, read: Call, edit: Call, run: Call) -> tuple[Turn, ...]:
    """The usual turns. `about` is only in the agent's own prompts, not in its prompt for a title."""
    return (
        Turn((), "Mend a sum"),
        Turn((about,), calls=[read]),
        Turn((about, "def add(a, b)"), "It subtracts.", [edit]),
        Turn((about, "def add(a, b)", "return a + b"), calls=[run]),
        Turn((about, "Ran 1 test"), ANSWER),
    )


@dataclass(frozen=True)
class Agent:
    """program, heading: of the agent and its recipe. turns: the model's. is_proxied: it heeds NO_PROXY."""

    program: str
    heading: str
    turns: tuple[Turn, ...]
    is_proxied: bool = True

    @property
    def folder(self) -> Path:
        """The folder into which install_agents.sh installs the agent."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        rows = [line.split() for line in (HERE / "agents.txt").read_text("utf-8").splitlines()]
        (version,) = (row[-1] for row in rows if row[0] == self.program)
        return cache / "llama-duo/agents" / f"{self.program}-{version}"

    @property
    def is_installed(self) -> bool:
        return (self.folder / ".ready").is_file()

    def run(self, place: Path, url: str, key: str, seconds: float) -> subprocess.CompletedProcess[str]:
        """Do the task as the recipe says. `place` gets the folders `home` and `work`."""
        home, work = place / "home", place / "work"
        for folder in (home, work):
            folder.mkdir()
        for name, text in FILES.items():
            (work / name).write_text(text)
        (work / KEY).write_text(key)
        lines = ""
        for path, text in blocks(self.heading):
            given = text.replace(URL, url)
            if not path:
                lines = given
                continue
            file = home / path[2:] if path.startswith("~/") else work / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(given)
        return subprocess.run(
            ["/bin/bash", "-ec", lines],
            cwd=work,
            env=self._environment(home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def _environment(self, home: Path) -> dict[str, str]:
        """An environment without the developer's variables. Requests to other machines fail."""
        nowhere = "http://127.0.0.1:9" if self.is_proxied else ""
        return {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), nowhere),
            **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1"),
        }


def blocks(heading: str) -> list[tuple[str, str]]:
    """The blocks of a recipe: (path, text) of each file, ("", lines) of the commands."""
    section = RECIPES.read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.findall(r"(?:^`([^`\n]+)`[^\n]*:\n\n)?^```\w+\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert found, f"{heading} has no blocks"
    return found


def has_passed(work: Path) -> bool:
    """Return whether the file is right and its test passes."""
    test = subprocess.run([sys.executable, "-m", "unittest"], cwd=work, capture_output=True, check=False)
    return MENDED in (work / "calc.py").read_text("utf-8") and test.returncode == 0


AGENTS = {
    agent.program: agent
    for agent in (
        Agent(
            "claude",
            "Claude Code",
            _turns(
                "Claude Code",
                ("Read", {"file_path": "{work}/calc.py"}),
                ("Edit", {"file_path": "{work}/calc.py", "old_string": BROKEN, "new_string": MENDED}),
                ("Bash", {"command": RUN_TEST, "description": "Run the test"}),
            ),
        ),
        Agent(
            "codex",
            "Codex",
            _turns(
                "Codex CLI",
                ("exec_command", {"cmd": "cat calc.py"}),
                ("exec_command", {"cmd": _PATCH}),
                ("exec_command", {"cmd": RUN_TEST, "yield_time_ms": 10000}),
            ),
        ),
        Agent(
            "opencode",
            "opencode",
            _turns(
                "You are opencode",
                ("read", {"filePath": "{work}/calc.py"}),
                ("edit", {"filePath": "{work}/calc.py", "oldString": BROKEN, "newString": MENDED}),
                ("bash", {"command": RUN_TEST}),
            ),
        ),
        Agent(
            "qwen",
            "Qwen Code",
            _turns(
                "You are Qwen Code",
                ("read_file", {"file_path": "{work}/calc.py"}),
                ("edit", {"file_path": "{work}/calc.py", "old_string": BROKEN, "new_string": MENDED}),
                ("run_shell_command", {"command": RUN_TEST, "is_background": False}),
            ),
            is_proxied=False,
        ),
        Agent(
            "pi",
            "pi",
            _turns(
                "operating inside pi",
                ("read", {"path": "calc.py"}),
                ("edit", {"path": "calc.py", "edits": [{"oldText": BROKEN, "newText": MENDED}]}),
                ("bash", {"command": RUN_TEST}),
            ),
        ),
        Agent(
            "aider",
            "aider",
            (Turn((), "fix: add instead of subtract"), Turn(("SEARCH/REPLACE",), f"{ANSWER}\n\n{_BLOCK}")),
        ),
    )
}
