"""Before the model is loaded, flash attention is chosen for it."""

from lead.attention.attention_probe import choose_flash_attention
from lead.engine.heartbeat import Heartbeat
from lead.engine.load import Load


def before_load(load: Load, _: Heartbeat | None) -> Load:
    """Plugged in."""
    return choose_attention(load)


def choose_attention(load: Load) -> Load:
    """With flash attention chosen by measurement, unless results must not depend on the cache (--exact)."""
    if not load.calibrate or load.options.exact != "off":
        return load
    n_threads = load.max_threads or load.options.threads
    options = choose_flash_attention(load.model, load.options, n_threads)
    return load.model_copy(update={"options": options})
