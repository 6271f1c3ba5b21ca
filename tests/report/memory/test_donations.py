"""What becomes of inputs that are given away, in words and by what a run holds."""

from __future__ import annotations

import jax
import pytest
from jax import lax
from lint_programs import f32, s32, text_of

from hlo_opt import parse
from hlo_opt.passes.run import report_on, run
from hlo_opt.report.memory.page import MemoryReport, as_json, as_page, memory_report


def written(cache: jax.Array, row: jax.Array, at: jax.Array) -> jax.Array:
    return lax.dynamic_update_slice(cache, row, (at, 0))


def doubled(cache: jax.Array, row: jax.Array, at: jax.Array) -> tuple[jax.Array, jax.Array]:
    return cache * 2, row + at


def turned(cache: jax.Array, row: jax.Array, at: jax.Array) -> jax.Array:
    return cache[::-1] + row * at


def kept(cache: jax.Array, row: jax.Array, at: jax.Array) -> tuple[jax.Array, jax.Array]:
    return lax.dynamic_update_slice(cache, row, (at, 0)), cache


def report(function: object, *donated: int) -> MemoryReport:
    text = text_of(function, (f32(256, 256), f32(1, 256), s32()), donate_argnums=donated)
    return memory_report(report_on(run(parse(text))))


@pytest.mark.parametrize(
    ("function", "donated", "honoured"),
    [
        (written, (0,), [True]),
        (written, (), []),
        (doubled, (0,), [True]),
        (doubled, (0, 1), [True, True]),
        (turned, (0,), [False]),
    ],
)
def test_each_input_that_is_given_away_is_told(
    function: object, donated: tuple[int, ...], honoured: list[bool]
) -> None:
    found = report(function, *donated)
    assert [one.is_honoured for one in found.donations] == honoured
    assert [one.parameter.parameter_number for one in found.donations] == list(donated)
    assert ("donated" in str(as_page(found))) == bool(donated)
    assert [one["honoured"] for one in as_json(found)["donations"]] == honoured


def test_what_is_honoured_takes_no_second_array() -> None:
    one, two = report(written, 0), report(written)
    assert two.after.bytes - one.after.bytes == 256 * 256 * 4 == one.donations[0].bytes


@pytest.mark.parametrize(
    ("function", "why"),
    [(turned, "reads it at other elements than it writes"), (kept, "it is result 1 as it stands")],
)
def test_the_page_says_why_a_donation_is_not_used(function: object, why: str) -> None:
    lines = str(as_page(report(function, 0))).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("donated: "))
    assert lines[at] == "donated: 1 input, 0 honoured by our kernels"
    assert "`cache.1` does not hold result 0: " in lines[at + 1] and lines[at + 1].endswith(why)
