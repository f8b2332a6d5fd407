"""The version of llama-duo."""

import importlib.metadata

VERSION = importlib.metadata.version("llama-duo")
"""Read once, at the start: later there may be no free descriptor for its file."""
