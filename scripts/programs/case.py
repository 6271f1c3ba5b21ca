"""How a program is declared: a function, the arrays it takes and how its dump should look."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import numpy as np

Form = Literal["short", "classic", "frames"]
"""How a dump is written.

`short`    as `jax.jit(f).lower(...).as_text("hlo")`, each instruction with the file and line that wrote it;
`classic`  as XLA dumped until 2023: `%` names, the shape of every operand, file and line in the metadata;
`frames`   as `--xla_dump_to` writes today: `%` names, stack frame tables before the computations.
"""

Platform = Literal["cuda", "cpu"]


@dataclass(frozen=True)
class Arg:
    """One array parameter and the range that sample inputs of it come from.

    Without a range, floats are drawn from a normal distribution and integers are small (see `scripts/xla_cpu.py`).
    """

    shape: tuple[int, ...]
    dtype: str
    low: float | None = None
    high: float | None = None

    def struct(self) -> jax.ShapeDtypeStruct:
        """The abstract value that JAX traces with."""
        return jax.ShapeDtypeStruct(self.shape, np.dtype(jax.numpy.dtype(self.dtype)))


def f32(*shape: int, low: float | None = None, high: float | None = None) -> Arg:
    """A float32 array; `low` and `high` bound its samples."""
    return Arg(shape, "float32", low, high)


def s32(*shape: int, low: int = 0, high: int = 2) -> Arg:
    """An int32 array with samples in [low, high)."""
    return Arg(shape, "int32", low, high)


def words(*shape: int) -> Arg:
    """Unsigned 32-bit words over the whole range, as random number generators take."""
    return Arg(shape, "uint32", 0, 2**32)


def of(dtype: str, *shape: int, low: float | None = None, high: float | None = None) -> Arg:
    """An array of any type, by its NumPy name (`bfloat16` and the like too)."""
    return Arg(shape, dtype, low, high)


@dataclass(frozen=True)
class Case:
    """One dump, or one per form: `testdata/dumps/NAME.hlo`, `NAME.classic.hlo`, `NAME.frames.hlo`."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    """Pytrees of `Arg`, one per positional argument of the function."""
    forms: tuple[Form, ...] = ("short",)
    platform: Platform = "cuda"
    """The platform JAX lowers for; it decides, for example, whether ThreeFry's rounds are unrolled."""
    donate: tuple[int, ...] = ()
    """Arguments whose buffers the results may take over."""
    x64: bool = False
    """Whether 64-bit types are allowed."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further `jax.config` settings while this case is lowered."""
    twin: str | None = None
    """A case with the same parameters and the same results that XLA:CPU can run, where it cannot run this one."""
    skip: str | None = None
    """Why no expected outputs are made for this case."""

    mesh: Mapping[str, int] | None = None
    """Axes and sizes of the devices that `shardings` and `results` cut the program for, by XLA's partitioner."""
    shardings: Any = None
    results: Any = None
    """Partition specifications of the arguments and the results."""

    def leaves(self) -> list[Arg]:
        """The parameters of the entry computation, in order."""
        return jax.tree.leaves(self.args, is_leaf=lambda x: isinstance(x, Arg))
