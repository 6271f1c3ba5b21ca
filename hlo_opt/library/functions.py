"""The functions of this room by name, and their source, which emitted drivers contain."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from hlo_opt.library import arrays, collectives, linear, order, products, steps

_FILES = (arrays, collectives, linear, order, products, steps)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: f for file in _FILES for name, f in inspect.getmembers(file, inspect.isfunction)
}


def texts_of(names: Sequence[str]) -> list[str]:
    """The source of the named functions and of those they call, callees first."""
    order: dict[str, None] = {}
    todo = [(name, False) for name in reversed(names)]
    while todo:
        name, ready = todo.pop()
        if name in order:
            continue
        if ready:
            order[name] = None
            continue
        todo.append((name, True))
        codes = [FUNCTIONS[name].__code__]
        for code in codes:  # with the comprehensions inside, whose code is among the constants
            codes.extend(c for c in code.co_consts if inspect.iscode(c))
            todo.extend((n, False) for n in code.co_names if n in FUNCTIONS)
    return [inspect.getsource(FUNCTIONS[name]).rstrip() for name in order]
