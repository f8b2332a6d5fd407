"""A progress bar on a terminal, for writing a model."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shared.terminal import one_line

Progress = Callable[[int, int], None]
"""A function that is called with (bytes done, bytes in total); an exception that it raises cancels the
writing.
"""
APPEARS_AFTER_SECONDS = 0.1


@contextmanager
def progress_bar(what: str) -> Iterator[Progress]:
    """Yield the function that moves the bar. The bar appears after a moment; short work shows none."""
    from tqdm import tqdm  # noqa: PLC0415 - most starts write no model

    what = one_line(what)
    with tqdm(unit="B", unit_scale=True, desc=what, file=sys.stderr, delay=APPEARS_AFTER_SECONDS) as bar:

        def show(n_done: int, n_total: int) -> None:
            bar.total = n_total
            bar.update(n_done - bar.n)

        yield show
