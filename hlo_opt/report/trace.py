"""The values of instructions that somebody asked for, as they come up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo_opt.diag import UsageError, did_you_mean
from hlo_opt.evaluate.watch import Event
from hlo_opt.ir import Module
from hlo_opt.ops.collective.module_devices import counts
from hlo_opt.ops.values import Dynamic
from hlo_opt.report.page import Page, Word
from hlo_opt.report.runs import value_lines


class Trace:
    """Which instructions of a module are traced, and which of them have been seen.

    A name stands for the instructions of that name in all computations; a `%` before it is left out. Raises UsageError, naming the nearest, for a name that the
    module does not have.
    """

    def __init__(self, module: Module, names: Sequence[str]) -> None:
        known = {i.name for c in module.computations for i in c.instructions}
        self._names: dict[str, bool] = {}
        self._devices = int(np.prod(counts(module)))
        for name in names:
            plain = name.removeprefix("%")
            if plain not in known:
                raise UsageError(f"there is no instruction {plain!r}", hint=did_you_mean(plain, known))
            self._names[plain] = False

    def page(self, event: Event) -> Page | None:
        """What is said about an evaluation; None for an instruction that is not traced."""
        name = event.instruction.name
        if name not in self._names:
            return None
        self._names[name] = True
        page = Page()
        where = event.place() + (f", device {event.device}" if self._devices > 1 else "")
        for path, leaf in _leaves(event.value):
            array = leaf.used if isinstance(leaf, Dynamic) else np.asarray(leaf)
            kind = f"  {array.dtype.name}[{','.join(map(str, array.shape))}]  "
            page.add(Word(f"{name}{path}", "bold"), kind, Word(f"in {where}", "dim"))
            for line in value_lines(array):
                page.add(f"  {line}")
        if not page.lines:
            page.add(Word(name, "bold"), "  ()  ", Word(f"in {where}", "dim"))
        return page

    def rest(self) -> Page:
        """The names that never came up."""
        page = Page()
        for name, is_seen in self._names.items():
            if not is_seen:
                page.add(
                    f"{name} was not evaluated: no output needs it, or its computation runs as one NumPy operation"
                )
        return page


def _leaves(value: object) -> list[tuple[str, object]]:
    """The arrays of a value, each with its place in the tuple: `{1,0}`, as HLO writes it."""
    found: list[tuple[str, object]] = []
    todo: list[tuple[tuple[int, ...], object]] = [((), value)]
    while todo:
        place, top = todo.pop()
        if isinstance(top, tuple):
            todo.extend(((*place, k), top[k]) for k in reversed(range(len(top))))
        else:
            found.append((f"{{{','.join(map(str, place))}}}" if place else "", top))
    return found
