"""The output of a part of the benchmark: rows, environment, files, and a line of JSON."""

import argparse
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.measuring.bench_report import environment, rounded
from lead.text_table import Columns, text
from shared.errors import ConfigError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that all parts share."""
    parser.add_argument(
        "--quick", action="store_true", help="end within two minutes, only to show that it runs"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result to this file")


def parse(
    parser: argparse.ArgumentParser, arguments: Sequence[str], quick: Mapping[str, Any]
) -> argparse.Namespace:
    """Parse the command line. --quick replaces the defaults by `quick`; explicit options override them."""
    settings = parser.parse_args(arguments)
    if settings.quick:
        parser.set_defaults(**quick)
        settings = parser.parse_args(arguments)
    return settings


def show(title: str, rows: Sequence[Mapping[str, Any]], columns: Columns) -> None:
    """Print a table."""
    print(text(title, rows, columns))


def finish(part: str, rows: Sequence[Mapping[str, Any]], arguments: argparse.Namespace, **more: Any) -> None:
    """Write the requested files, then print the result as one JSON object in the last line."""
    result = {"bench": part, "command": shlex.join(sys.argv), "environment": environment(), **more}
    line = json.dumps(rounded({**result, "rows": list(rows)}))
    if arguments.json:
        try:
            arguments.json.write_text(line + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--json: {error}") from error
    print(line, flush=True)
