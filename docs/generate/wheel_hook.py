"""Puts completions and man pages into a wheel. A hook of hatchling, which loads it by its path.

It is off by default: `pip install .` builds with hatchling alone, and its wheel has none of them. With
HATCH_BUILD_HOOK_ENABLE_CUSTOM=true, as `make wheels` sets it, a wheel has all of them or is not built.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommandLineFiles(BuildHookInterface[BuilderConfig]):
    """They are written into a folder that is there while the wheel is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        """Raises ImportError where a library is missing that the parsers or the writers need."""
        sys.path.insert(0, self.root)
        from docs.generate.command_lines import write_command_line_files  # noqa: PLC0415 - found by the path

        self._share = TemporaryDirectory()
        write_command_line_files(Path(self._share.name))
        build_data["shared_data"][self._share.name] = "share"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - as above
        self._share.cleanup()
