"""What becomes of inputs that are given away, in words and by what a run holds."""

from __future__ import annotations

import jax
import pytest
from jax import lax
from lint_programs import f32, s32, text_of

from hlo_opt import parse
from hlo_opt.passes import ExplainReport
from hlo_opt.passes.run import report_on, run
from hlo_opt.report.donations import kept_apart, lost_by_fusing, not_honoured
from hlo_opt.report.lint.check import lint
from hlo_opt.report.memory.page import MemoryReport, as_json, as_page, memory_report
from hlo_opt.report.sentences import figures_page


def written(cache: jax.Array, row: jax.Array, at: jax.Array) -> jax.Array:
    return lax.dynamic_update_slice(cache, row, (at, 0))


def doubled(cache: jax.Array, row: jax.Array, at: jax.Array) -> tuple[jax.Array, jax.Array]:
    return cache * 2, row + at


def turned(cache: jax.Array, row: jax.Array, at: jax.Array) -> jax.Array:
    return cache[::-1] + row * at


def kept(cache: jax.Array, row: jax.Array, at: jax.Array) -> tuple[jax.Array, jax.Array]:
    return lax.dynamic_update_slice(cache, row, (at, 0)), cache


def read_backwards(cache: jax.Array, row: jax.Array, at: jax.Array) -> tuple[jax.Array, jax.Array]:
    new = cache + row
    return new, new[::-1] * at


def attended(cache: jax.Array, row: jax.Array, at: jax.Array) -> tuple[jax.Array, jax.Array]:
    new = lax.dynamic_update_slice(cache, row, (at, 0))
    return new, jax.nn.softmax(new @ row[0])


def fused(function: object, *donated: int, rows: int = 256, columns: int = 256) -> ExplainReport:
    text = text_of(function, (f32(rows, columns), f32(1, columns), s32()), donate_argnums=donated)
    return report_on(run(parse(text)))


def report(function: object, *donated: int) -> MemoryReport:
    return memory_report(fused(function, *donated))


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


@pytest.mark.parametrize("function", [read_backwards, attended])
def test_an_edge_is_named_that_keeps_what_fusing_lost(function: object) -> None:
    explained = fused(function, 0, rows=48, columns=16)
    left = not_honoured(explained)
    assert [one.leaf for one in lost_by_fusing(explained, left)] == [0]
    forbidden = kept_apart(explained, left)[0]
    apart = report_on(run(explained.outcome.original, forbid=[forbidden.edge]))
    assert not_honoured(apart) == []
    assert apart.after.est_us == pytest.approx(explained.after.est_us + forbidden.us) and forbidden.us > 0
    forbid = f"--forbid {':'.join(forbidden.edge)} keeps the donation, for "
    memory = memory_report(explained)
    assert forbid in str(as_page(memory))
    (told,) = as_json(memory)["donations"]
    assert told["forbid"] == {"edge": ":".join(forbidden.edge), "us": round(forbidden.us, 3)}
    (found,) = (one for one in lint(explained) if one.code == "LNT112")
    assert found.hint.startswith(forbid) and found.bytes == 48 * 16 * 4


def test_no_edge_is_to_blame_for_what_the_program_itself_loses() -> None:
    explained = fused(kept, 0)
    left = not_honoured(explained)
    assert [one.leaf for one in left] == [0] and lost_by_fusing(explained, left) == []
    (found,) = (one for one in lint(explained) if one.code == "LNT112")
    assert "or do not donate it" in found.hint


@pytest.mark.parametrize(
    ("function", "says"),
    [(turned, "  1 donated input (262 kB) holds no result: hlo-opt memory says why"), (doubled, "")],
)
def test_explain_says_that_a_donation_is_not_used(function: object, says: str) -> None:
    lines = str(figures_page(fused(function, 0))).splitlines()
    assert [line for line in lines if "donated" in line] == [says] * bool(says)


def test_small_arrays_are_not_worth_a_word() -> None:
    """The row is 1/256 of the cache."""

    def rolled(cache: jax.Array, row: jax.Array, at: jax.Array) -> tuple[jax.Array, jax.Array]:
        return cache * at, row[:, ::-1] + row

    memory = memory_report(fused(rolled, 0, 1))
    assert [one.is_honoured for one in memory.donations] == [True, False]
    assert not_honoured(memory.report) == []


@pytest.mark.parametrize(("size", "found"), [(4096, 0), (4, 1)])
def test_a_small_donation_beside_large_arrays_of_a_tuple_is_not_told(size: int, found: int) -> None:
    text = f"""HloModule m, input_output_alias={{ {{1}}: (0, {{1}}, may-alias) }}
ENTRY e {{
  p = (f32[{size}], f32[4]) parameter(0)
  x = f32[{size}] get-tuple-element(p), index=0
  y = f32[4] get-tuple-element(p), index=1
  n = f32[{size}] negate(x)
  v = f32[4] reverse(y), dimensions={{0}}
  ROOT r = (f32[{size}], f32[4]) tuple(n, v)
}}
"""
    assert len(not_honoured(report_on(run(parse(text))))) == found
