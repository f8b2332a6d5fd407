"""The version of llama-duo."""

import importlib.metadata

VERSION = importlib.metadata.version("llama-duo")
"""Read once, at the start: later there may be no descriptor for its file."""
