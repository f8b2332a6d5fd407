"""Rows as a table."""

import io
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

Columns = Mapping[str, tuple[str, str]]
"""Heading and format by field; a field without a value is shown as a dash."""

_WIDTH_OF_A_FILE = 160


def text(title: str, rows: Sequence[Mapping[str, Any]], columns: Columns) -> str:
    """As wide as the terminal, without colors."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_OF_A_FILE
    console = Console(
        file=io.StringIO(), width=width, highlight=False, color_system=None, markup=False, emoji=False
    )
    with console.capture() as captured:
        console.print(build(title, rows, columns))
    return captured.get().rstrip("\n")


def build(title: str, rows: Sequence[Mapping[str, Any]], columns: Columns) -> Table:
    """Numbers are aligned to the right and always whole; names, to the left, may be folded."""
    table = Table(title=title, title_justify="left")
    for field, (heading, form) in columns.items():
        numeric = any(isinstance(row.get(field), int | float) for row in rows)
        least = max(len(cell(row.get(field), form)) for row in rows) if numeric else None
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold", min_width=least)
    for row in rows:
        table.add_row(*(cell(row.get(field), form) for field, (_, form) in columns.items()))
    return table


def cell(value: object, form: str) -> str:
    """Format one value."""
    return "-" if value is None else format(value, form)
