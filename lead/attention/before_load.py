"""The ring's module for the seam `before_load`: chooses flash attention."""

from lead.attention.attention_probe import choose_flash_attention
from lead.engine.heartbeat import Heartbeat
from lead.engine.load import Load


def before_load(load: Load, _: Heartbeat | None) -> Load:
    """Return the hook of the seam `before_load`."""
    return choose_attention(load)


def choose_attention(load: Load) -> Load:
    """Return the load with flash attention chosen by measurement, unless results must not depend on the cache
    (--exact).
    """
    if not load.calibrate or load.options.exact != "off":
        return load
    n_threads = load.max_threads or load.options.threads
    options = choose_flash_attention(load.model, load.options, n_threads)
    return load.model_copy(update={"options": options})
