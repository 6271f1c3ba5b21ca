from pathlib import Path

import pytest

from hlo_opt.analysis.targets import target
from hlo_opt.diag import UsageError

SPEC = """# A device in the form of XLA's spec files.
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  memory_bandwidth: 3352320000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 84942979072
  shared_memory_per_block_optin: 232448
  cuda_compute_capability {
    major: 9
    minor: 0
    feature_extension: ACCELERATED_FEATURES
  }
  registers_per_block_limit: 65536
  scalar_unit_description {
    rate_infos { key: 4 value { clock_rate_ghz: 1.98 } }
    rate_infos { key: 8 value { clock_rate_ghz: 1.98 } }
  }
}
platform_name: "CUDA"
device_description_str: "Some H100"
"""


@pytest.mark.parametrize("suffix", [".txtpb", ".textproto", ".pbtxt"])
def test_a_spec_file_is_a_device(tmp_path: Path, suffix: str):
    path = tmp_path / f"mine{suffix}"
    path.write_text(SPEC)
    found, ours = target(str(path)), target("h100_sxm")
    assert (found.name, found.title, found.architecture) == ("mine", "Some H100", "sm_90")
    for name in ("memory_bandwidth", "core_count", "clock_rate_ghz", "l2_cache_size", "registers_per_block_limit"):
        assert getattr(found, name) == getattr(ours, name)


def test_the_device_may_stand_alone(tmp_path: Path):
    path = tmp_path / "bare.txtpb"
    inner = SPEC[SPEC.index("{") + 1 : SPEC.rindex("}")]
    path.write_text(inner + 'name: "Bare"')
    assert target(str(path)).title == "Bare"
    path = tmp_path / "nameless.txtpb"
    path.write_text(inner)
    assert target(str(path)).title == "nameless"


@pytest.mark.parametrize(
    ("old", "new", "message", "line"),
    [
        ("core_count: 132", "core_count: many", "number is wanted, not many", 8),
        ("core_count: 132", "core_count: 0", "core_count must be positive, not 0", 8),
        ("core_count: 132", "core_count: 1.5", "whole number is wanted", 8),
        ("core_count: 132", "core_count: 132 core_count: 132", "core_count is given twice", 8),
        ("core_count: 132", "core_count { }", "core_count is a plain value", 8),
        ("core_count: 132", "", "lacks core_count", None),
        ("clock_rate_ghz: 1.98\n  device", f"clock_rate_ghz: 1{'0' * 38}e999\n  device", "number is wanted", 12),
        ("memory_bandwidth: 3352320000000", "memory_bandwidth: 1e999", "memory_bandwidth must be positive", 10),
        ("gpu_device_info {", "gpu_device_info: 3 other {", "gpu_device_info is a message", 2),
        ("gpu_device_info", "other", "no gpu_device_info", None),
        ("cuda_compute_capability", "rocm_compute_capability", "no cuda_compute_capability", None),
        ('"Some H100"', "H100", "quoted text is wanted", 27),
    ],
)
def test_what_is_no_device(tmp_path: Path, old: str, new: str, message: str, line: int | None):
    path = tmp_path / "wrong.txtpb"
    assert old in SPEC
    path.write_text(SPEC.replace(old, new, 1))
    with pytest.raises(UsageError, match=message) as caught:
        target(str(path))
    assert caught.value.line == line
    assert "wrong.txtpb" in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(UsageError, match="cannot be read"):
        target(str(tmp_path / "absent.txtpb"))
    path = tmp_path / "binary.txtpb"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot be read"):
        target(str(path))
    path = tmp_path / "long.txtpb"
    path.write_text(SPEC + "#" * (1 << 20))
    with pytest.raises(UsageError, match="longer than"):
        target(str(path))
