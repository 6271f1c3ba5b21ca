"""Indices of threads in a kernel's text."""

from __future__ import annotations

import pytest

from hlo_opt.codegen.host_threads import WARP, greatest, lanes_of, taken_apart

KNOWN = {"threadIdx.x": 1023, "blockIdx.x": 121, "part": 121}
PURE = {
    "lane": "const int lane = threadIdx.x;",
    "way": "const int way = threadIdx.x / 8;",
    "odd": "const int odd = in0[3];",
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("threadIdx.x", 1023),
        ("lane", 1023),
        ("part * 1024 + lane", 121 * 1024 + 1023),
        ("part * 128 + way", 121 * 128 + 127),
        ("blockIdx.x / 4 * 8 + threadIdx.x % 8", 30 * 8 + 7),
        ("blockIdx.x % 200", 121),
        ("7 + 3 * 2", 13),
        ("lane - 1", None),
        ("(lane + 1) * 2", None),
        ("lane / part", None),
        ("lane / 0", None),
        ("lane +", None),
        ("lane < 3", None),
        ("odd", None),
        ("other", None),
        ("", None),
    ],
)
def test_how_large_an_index_gets(text: str, found: int | None) -> None:
    assert greatest(text, KNOWN, PURE) == found


def test_threads_that_go_through_a_row_of_8_go_side_by_side() -> None:
    text = "const int way = threadIdx.x / 8;\nconst int lane = threadIdx.x % 8;"
    assert lanes_of(text) == 8
    assert lanes_of(text.replace("8", "16")) == 16 and lanes_of(text.replace("8", "64")) == WARP
    assert lanes_of(text.replace("8", "4")) == WARP  # too few for a vector
    assert lanes_of(text + " hlo_shown0_of[hlo_first + 3]") == WARP  # another lane of the warp is read
    assert taken_apart(text, 8) == "const int way = (hlo_first / 8);\nconst int lane = (hlo_first % 8 + hlo_lane);"
    assert taken_apart(text, WARP) == text.replace("threadIdx.x", "hlo_thread")
    assert taken_apart("x / threadIdx.x % 8", 8) == "x / hlo_thread % 8"
