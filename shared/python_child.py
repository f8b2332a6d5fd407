"""The command lines of Python processes that we start.

None imports anything from the working directory. `python -m shared.python_child FD MODULE …` ends with the
process that has started it (`shared.lifeline`).
"""

import os
import sys

from shared.lifeline import end_with, lifeline
from shared.search_paths import without_working_directory


def python_command(module: str, *arguments: str) -> list[str]:
    """Runs a module as a program of its own."""
    return [sys.executable, "-P", "-m", module, *arguments]


def child_command(module: str, *arguments: str) -> list[str]:
    """Runs a module as a child that ends with this process; it inherits `lifeline`."""
    return python_command("shared.python_child", str(lifeline()), module, *arguments)


def child_environment() -> dict[str, str]:
    """The variables of this process, but for what has a child look for modules in the working directory."""
    return without_working_directory(os.environ)


def main() -> None:
    """Run the module as `python -m` does."""
    end_with(int(sys.argv[1]))
    del sys.argv[:2]
    import runpy  # noqa: PLC0415 - the parent may be gone already

    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
