"""How a JAX program gives inputs away."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hlo_opt.ir import Instruction

_ARGUMENT = re.compile(r"(?!args\b|kwargs\b)([A-Za-z_]\w*)(?=$|[.\[])")
"""The argument's name at the start of an input's, such as `state.params['w']`. All arguments of `*args` have one name,
which says nothing."""


def donation_of(parameters: Sequence[Instruction]) -> str:
    """The keyword of `jax.jit` that gives the arguments away to which these parameters of an entry belong: by name,
    where the dump has the names of all of them (an argument may be many arrays), else by the parameters' numbers."""
    matches = [_ARGUMENT.match(p.metadata.op_name) for p in parameters]
    names = list(dict.fromkeys(m[1] for m in matches if m is not None))
    if all(matches):
        return f"jax.jit(..., donate_argnames=({', '.join(map(repr, names))}{',' if len(names) == 1 else ''}))"
    runs: list[list[int]] = []
    for number in sorted({p.parameter_number for p in parameters if p.parameter_number is not None}):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [f"*range({r[0]}, {r[-1] + 1})" if len(r) > 2 else ", ".join(map(str, r)) for r in runs]
    comma = "," if len(runs) == 1 and len(runs[0]) != 2 else ""
    return f"jax.jit(..., donate_argnums=({', '.join(parts)}{comma}))"
