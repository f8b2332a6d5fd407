"""The model that is served without --model: the shipped one, grown to the cost of a large model."""

import logging
from collections.abc import Callable
from pathlib import Path

from shared.errors import ConfigError
from shared.models.builtin import grown_target
from shared.models.gguf_file import progress_bar

log = logging.getLogger("lead")


def demo_model(cancelled: Callable[[], bool]) -> Path:
    """The path of the demo model; on first use it is created, with a progress bar.

    Raises ConfigError if there is no space for it, or once `cancelled` returns true.
    """
    log.info(
        "without --model, the built-in demo model is served: 6M parameters expanded to 0.4G, which gives the "
        "answers of the small model at the speed of a large one"
    )
    with progress_bar("creating the demo model") as show:

        def progress(n_done: int, n_total: int) -> None:
            if cancelled():
                raise ConfigError("stopped before the demo model was created")
            show(n_done, n_total)

        return grown_target(progress)
