from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_opt.analysis.targets import target
from hlo_opt.analysis.targets.spec_file import Message, parse
from hlo_opt.diag import Source, UsageError


def read(text: str) -> Message:
    return parse(Source(text, "device.txtpb"))


def scalar(message: Message, name: str):
    found = message.scalar(name)
    assert found is not None
    return found


def test_scalars_and_messages():
    top = read(
        """# a comment
name: "Some \\"GPU\\"" ' and more'  # another
size: 0x10, speed: 1.5e1f;
negative: -3
word: NONE
inner { size: 7 }
other: < deep { size: 8 } >
[an.extension] { size: 9 }
"""
    )
    assert scalar(top, "name").text() == 'Some "GPU" and more'
    assert scalar(top, "size").integer() == 16
    assert scalar(top, "speed").number() == 15.0
    assert scalar(top, "negative").integer() == -3
    assert scalar(top, "word").written == "NONE"
    inner, other = top.message("inner"), top.message("other")
    assert inner is not None
    assert scalar(inner, "size").integer() == 7
    assert other is not None
    deep = other.message("deep")
    assert deep is not None
    assert scalar(deep, "size").integer() == 8
    assert top.scalar("absent") is None
    assert top.message("absent") is None


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("a {\n  b: 1\n", "no }", 1, 3),
        ("a: 1\n}", "expected the name of a field, found }", 2, 1),
        ("a {\n  b 1\n}", "b needs a colon", 2, 5),
        ("a: [1, 2]", "a is a list", 1, 4),
        ("a: {b: <}>", "expected the name of a field, found }", 1, 9),
        ("a:", "expected a value", 1, 3),
        ("a: $", "unexpected character", 1, 4),
        ('a: "open\nb: 1', "does not end on its line", 1, 4),
        ("1: 2", "expected the name of a field, found 1", 1, 1),
    ],
)
def test_faults_name_their_place(text: str, message: str, line: int, column: int):
    with pytest.raises(UsageError, match=message) as caught:
        read(text)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_values_of_the_wrong_kind():
    top = read(f"a: word\nb {{ }}\nc: 1\nc: 2\nd: 1.5\ne: {'9' * 5000}\nf: 3")
    for name, wanted, what in (
        ("a", "number", "expected a number"),
        ("d", "integer", "whole number"),
        ("e", "integer", "expected a number"),
    ):
        with pytest.raises(UsageError, match=what):
            getattr(scalar(top, name), wanted)()
    with pytest.raises(UsageError, match="not a message"):
        top.scalar("b")
    with pytest.raises(UsageError, match="in braces"):
        top.message("f")
    with pytest.raises(UsageError, match="given twice") as caught:
        top.scalar("c")
    assert caught.value.line == 4
    with pytest.raises(UsageError, match="quoted text"):
        scalar(top, "f").text()


def test_depth_and_length_are_no_trouble():
    assert read("a {" * 20000 + "}" * 20000).message("a") is not None
    with pytest.raises(UsageError, match="longer than"):
        read("#" * (1 << 20) + "\n#")


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="ab:{}<>,;[]\"'\\\n #1.-ex", max_size=30))
def test_any_text_gives_a_message_or_a_place(text: str):
    try:
        read(text)
    except UsageError as fault:
        assert fault.line is not None


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
        ("core_count: 132", "core_count: many", "expected a number, found many", 8),
        ("core_count: 132", "core_count: 0", "core_count must be positive, not 0", 8),
        ("core_count: 132", "core_count: 1.5", "expected a whole number", 8),
        ("core_count: 132", "core_count: 132 core_count: 132", "core_count is given twice", 8),
        ("core_count: 132", "core_count { }", "core_count must be a plain value", 8),
        ("core_count: 132", "", "lacks core_count", None),
        ("clock_rate_ghz: 1.98\n  device", f"clock_rate_ghz: 1{'0' * 38}e999\n  device", "expected a number", 12),
        ("memory_bandwidth: 3352320000000", "memory_bandwidth: 1e999", "memory_bandwidth must be positive", 10),
        ("gpu_device_info {", "gpu_device_info: 3 other {", "gpu_device_info must be a message", 2),
        ("gpu_device_info", "other", "no gpu_device_info", None),
        ("cuda_compute_capability", "rocm_compute_capability", "no cuda_compute_capability", None),
        ('"Some H100"', "H100", "expected a quoted text", 27),
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
