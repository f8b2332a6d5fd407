from lead.tokenizer.work_limits import JobLimits
from shared.sandbox import MEGABYTE


def test_limits_grow_with_the_size_of_a_job():
    small, large = JobLimits.of(0, 4.0), JobLimits.of(4 * MEGABYTE, 4.0)
    assert (small.cpu_seconds, large.cpu_seconds) == (4.0, 12.0)
    assert (small.heap_bytes // MEGABYTE, large.heap_bytes // MEGABYTE) == (96, 256)
