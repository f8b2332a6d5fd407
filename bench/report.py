"""The result of a part of the bench: rows, environment, files, and one line of JSON."""

import argparse
import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from shared.errors import ConfigError

_PACKAGES = ("llama-duo", "llama-cpp-python", "numpy", "fastapi", "uvicorn", "websockets")
_CPUINFO = Path("/proc/cpuinfo")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that all parts share."""
    parser.add_argument(
        "--quick", action="store_true", help="end within two minutes, only to show that it runs"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result to this file")


def parse(
    parser: argparse.ArgumentParser, arguments: Sequence[str], quick: Mapping[str, Any]
) -> argparse.Namespace:
    """Parse; --quick replaces the defaults by those of `quick`; explicit options override them."""
    settings = parser.parse_args(arguments)
    if settings.quick:
        parser.set_defaults(**quick)
        settings = parser.parse_args(arguments)
    return settings


def finish(part: str, rows: Sequence[Mapping[str, Any]], arguments: argparse.Namespace, **more: Any) -> None:
    """Write the files asked for; the last line printed is the result as one JSON object."""
    result = {"bench": part, "command": shlex.join(sys.argv), "environment": environment(), **more}
    line = json.dumps(rounded({**result, "rows": list(rows)}))
    if arguments.json:
        try:
            arguments.json.write_text(line + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--json: {error}") from error
    print(line, flush=True)


def rounded(value: Any) -> Any:
    """Round every float inside to four significant digits; more would be noise."""
    match value:
        case float():
            return float(f"{value:.4g}")
        case dict():
            return {key: rounded(item) for key, item in value.items()}
        case list() | tuple():
            return [rounded(item) for item in value]
    return value


def environment() -> dict[str, Any]:
    """Hardware and versions, to compare results by."""
    return {
        "cpu": cpu_name(),
        "n_cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def cpu_name() -> str:
    """The processor's name: Linux's, elsewhere Python's."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
