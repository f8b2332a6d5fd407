"""The model that is served when none is named: the shipped one at a big model's cost."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path

from tqdm import tqdm

from shared.errors import ConfigError
from shared.models.builtin import grown_target

log = logging.getLogger("lead")


def demo_model(cancelled: Callable[[], bool]) -> Path:
    """The path of the grown target; a progress bar shows its making on first use.

    Raises ConfigError if there is no room for it, or once `cancelled` says so.
    """
    log.info(
        "no --model given: serving the built-in demo model, a 6M-parameter model grown to 0.4G parameters. "
        "It answers as the small one does and costs what a big one costs"
    )
    with tqdm(unit="B", unit_scale=True, desc="growing the demo model", file=sys.stderr, delay=0.1) as bar:

        def progress(n_done: int, n_total: int) -> None:
            if cancelled():
                raise ConfigError("stopped before the demo model was grown")
            bar.total = n_total
            bar.update(n_done - bar.n)

        return grown_target(progress)
