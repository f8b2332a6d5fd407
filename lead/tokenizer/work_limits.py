"""What one job may cost in a tokenizer process."""

from dataclasses import dataclass

from shared.sandbox import MEGABYTE

STACK_BYTES = 128 * MEGABYTE
"""For the thread that tokenizes. std::regex, with which llama.cpp splits text for some models, takes up to
400 bytes for each character of a run: this is enough for 300,000. Only what is needed uses memory."""
_FIXED_HEAP_BYTES = 96 * MEGABYTE
_HEAP_BYTES_PER_BYTE = 40
SECONDS_PER_SECOND_AND_MEGABYTE = 0.5


@dataclass(frozen=True, slots=True)
class JobLimits:
    """cpu_seconds: of the process. heap_bytes: more than the process had before."""

    cpu_seconds: float
    heap_bytes: int

    @classmethod
    def of(cls, n_bytes: int, base_seconds: float) -> "JobLimits":
        """For a job of `n_bytes`; an empty one may take `base_seconds`."""
        megabytes = n_bytes / MEGABYTE
        return cls(
            base_seconds * (1 + SECONDS_PER_SECOND_AND_MEGABYTE * megabytes),
            _FIXED_HEAP_BYTES + _HEAP_BYTES_PER_BYTE * n_bytes,
        )
