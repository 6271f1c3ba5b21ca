import pytest

from hlo_opt.analysis.targets import target
from hlo_opt.analysis.xla.timing import compute_ns, nanoseconds, overlapped, read_ns, write_ns

H100 = target("h100_sxm")


def test_times_are_kept_in_quarters_of_a_nanosecond():
    assert nanoseconds(1.1) == 1.0
    assert nanoseconds(1.2) == 1.25


def test_most_of_the_shorter_hides():
    assert overlapped(100, 40) == 100 + 40 - 38
    assert overlapped(40, 100) == 100 + 40 - 38


def test_few_blocks_compute_slowly():
    assert compute_ns(1e6, 132, 128, H100) == nanoseconds(1e6 / 66908)
    assert compute_ns(1e6, 1000, 1024, H100) == compute_ns(1e6, 132, 128, H100)
    assert compute_ns(1e6, 1, 32, H100) == nanoseconds(1e6 / 126)


def test_reads():
    # 1 MiB from memory, then 1 MiB from the second-level cache at 2.5 times the speed
    assert read_ns(2**20, 2**21, 1.0, 4096, H100) == pytest.approx(2**20 / 3352.32 * (1 + 1 / 2.5), abs=0.5)
    # what the first-level caches hold together is another 8 times faster
    assert read_ns(2**18, 2**19, 1.0, 4096, H100) == pytest.approx(2**18 / 3352.32 * (1 + 1 / 20), abs=0.5)
    # one block asks for 32 bytes at each clock
    assert read_ns(6336, 6336, 1.0, 1, H100) == 100.0
    # a sixteenth of each transaction is wanted
    assert read_ns(2**20, 2**20, 1 / 16, 4096, H100) == pytest.approx(16 * 2**20 / 3352.32, abs=0.5)
    # more than the cache holds comes from memory each time
    size = 2**27
    assert read_ns(size, 2 * size, 1.0, 4096, H100) == pytest.approx(2 * size / 3352.32, abs=0.5)


def test_writes():
    assert write_ns(2**20, H100) == pytest.approx(2**20 / 3352.32, abs=0.25)
    assert write_ns(2**20, H100, 0.5) == pytest.approx(2**21 / 3352.32, abs=0.25)
