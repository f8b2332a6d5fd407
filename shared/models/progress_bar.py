"""A progress bar on standard error for a file that is being written."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

from shared.models.gguf_file import Progress

APPEARS_AFTER_SECONDS = 0.1


@contextmanager
def progress_bar(what: str) -> Iterator[Progress]:
    """Yields the function that moves the bar. It appears after a moment, so that short work shows none."""
    with tqdm(unit="B", unit_scale=True, desc=what, file=sys.stderr, delay=APPEARS_AFTER_SECONDS) as bar:

        def show(n_done: int, n_total: int) -> None:
            bar.total = n_total
            bar.update(n_done - bar.n)

        yield show
