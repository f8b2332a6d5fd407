"""Formats rows as a table."""

import io
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from shared.terminal import one_line

Columns = Mapping[str, tuple[str, str]]
"""The heading and the format of each field; a field without a value is shown as a dash."""

_WIDTH_OF_A_FILE = 160


def text(title: str, rows: Sequence[Mapping[str, Any]], columns: Columns) -> str:
    """Return the table as text as wide as the terminal, without colors."""
    return _drawn(_table(title, rows, columns))


def listing(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows of texts in aligned columns, without lines between them."""
    table = Table(box=None)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*map(one_line, row))
    return "\n".join(line.rstrip() for line in _drawn(table).splitlines())


def _drawn(table: Table) -> str:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_OF_A_FILE
    console = Console(
        file=io.StringIO(), width=width, highlight=False, color_system=None, markup=False, emoji=False
    )
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip("\n")


def _table(title: str, rows: Sequence[Mapping[str, Any]], columns: Columns) -> Table:
    """Return a table whose numbers are aligned right and never folded; names are aligned left."""
    table = Table(title=title, title_justify="left")
    for field, (heading, form) in columns.items():
        numeric = any(isinstance(row.get(field), int | float) for row in rows)
        minimum = max(len(_cell(row.get(field), form)) for row in rows) if numeric else None
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold", min_width=minimum)
    for row in rows:
        table.add_row(*(_cell(row.get(field), form) for field, (_, form) in columns.items()))
    return table


def _cell(value: object, form: str) -> str:
    """Format one value."""
    return "-" if value is None else format(value, form)
