"""Which instructions of a module show something by themselves."""

import re

from cutting_modules import TEXT

import hlo_opt
from hlo_opt.cutting.alone import alone
from hlo_opt.cutting.bisect import NO, Bisection, NoChange, Watch


class Same:
    """One module, whatever is done."""

    last, is_ours = 3, True

    def module(self, number):
        return hlo_opt.parse(TEXT)

    def name(self, number):
        return f"step {number}"


def test_what_shows_it_alone_is_named_with_its_line():
    text = re.compile(r" (sine|reduce)\(")
    asked = Watch("check", (lambda first, module, shown: "differs" if text.search(shown) else NO,))
    bisection = Bisection(Same(), asked, jobs=2)
    assert bisection.find() == NoChange("differs")
    found = alone(bisection)
    assert {one.opcode for one in found} == {"sine", "reduce"}
    assert {one.answer for one in found} == {"differs"}


def test_what_takes_several_is_said_of_none():
    asked = Watch(
        "check", (lambda first, module, shown: "differs" if " sine(" in shown and " while(" in shown else NO,)
    )
    bisection = Bisection(Same(), asked, jobs=2)
    assert isinstance(bisection.find(), NoChange) and alone(bisection) == []
