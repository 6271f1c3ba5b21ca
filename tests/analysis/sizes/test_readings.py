"""What a dump at another size says of how one was read."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.analysis.sizes.readings import check_other
from hlo_opt.analysis.sizes.resize import SizeRequest, Ties, tie
from hlo_opt.diag import UsageError

TEXT = """HloModule m

ENTRY e {
  x = f32[12,4]{1,0} parameter(0)
  rate = f32[] constant(0.5)
  rates = f32[12,4]{1,0} broadcast(rate), dimensions={}
  m = f32[12,4]{1,0} multiply(x, rates)
  ROOT s = f32[2,4]{1,0} slice(m), slice={[10:12], [0:4]}
}
"""


def found(text: str = TEXT) -> Ties:
    return tie(hlo_opt.parse(text), [SizeRequest.of("p0:0=..24")])


def other(size: int = 9, **changes: str) -> hlo_opt.Module:
    text = TEXT.replace("[12,4]", f"[{size},4]").replace("[10:12]", f"[{size - 2}:{size}]")
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    return hlo_opt.parse(text)


def test_a_dump_at_another_size_agrees() -> None:
    check_other(found(), other())
    check_other(found(), other(40))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (other(12), "same size"),
        (other(multiply="add"), "m: at size 9 the other dump has add"),
        (other(**{"0.5": "0.25"}), "has 0.25, not 0.5"),
        (other(**{"[7:9]": "[6:8]"}), "slice={[6:8], [0:4]}"),
        (other(**{"multiply(x, rates)": "multiply(rates, x)"}), "reads other values"),
        (
            other(**{"[9,4]": "[9,5]", "[7:9], [0:4]": "[7:9], [0:5]", "f32[2,4]": "f32[2,5]"}),
            "has f32[9,5], not f32[9,4]",
        ),
    ],
)
def test_what_differs_is_named(text: hlo_opt.Module, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_other(found(), text)
    assert caught.value.code == "SIZ112" and what in caught.value.message


def test_parts_say_what_they_are_taken_for() -> None:
    assert [text for _, text in found().read] == ["[10:12] of 12 is [n - 2:n] of n"]
    halves = TEXT.replace("ROOT s = f32[2,4]{1,0} slice(m), slice={[10:12], [0:4]}", "ROOT s = f32[3,4,4] reshape(m)")
    assert [text for _, text in found(halves).read] == ["[3,4,4] is [n / 4, 4, 4]"]
