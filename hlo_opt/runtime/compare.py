"""Do two modules compute the same? `check` is what `--check` and `hlo-opt check` run; `hlo_opt.runtime.differences` has the tolerance model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hlo_opt.diag import CheckError
from hlo_opt.evaluate.footprint import bytes_of
from hlo_opt.evaluate.memory import check_memory
from hlo_opt.ir import Module
from hlo_opt.runtime.differences import Difference, OutputReport, bound_of, compare_output
from hlo_opt.runtime.executable import compile, entry_inputs, entry_shapes
from hlo_opt.runtime.inputs import sample_inputs
from hlo_opt.runtime.memory import Array
from hlo_opt.runtime.perturb import moved_runs
from hlo_opt.runtime.reference import Reference

MOVED_RUNS = 3
"""How often the original is evaluated with its operations moved within their tolerances."""


@dataclass(frozen=True)
class CheckReport:
    """Whether two modules agree, and how closely.

    backend, why  where the second module ran, and why there
    inputs        what they were run on: `seed 0` or `given`
    first         the first element beyond its bound, in the order of outputs; None when all is well
    """

    ok: bool
    backend: str
    why: str
    inputs: str
    outputs: tuple[OutputReport, ...]
    first: Difference | None
    report: dict[str, Any]

    @property
    def max_ulp(self) -> float:
        return max((o.max_ulp for o in self.outputs), default=0.0)

    @property
    def max_share(self) -> float:
        """How much of its bound the element uses up that comes nearest to it, of all outputs."""
        return max((o.share for o in self.outputs), default=0.0)

    def __str__(self) -> str:
        if self.ok:
            number = len(self.outputs)
            return f"agrees on {self.backend} ({self.why}), {number} output{'' if number == 1 else 's'}, {self._closeness()}"
        where = f"differs on {self.backend} ({self.why})"
        return f"{where}: {self.first}" if self.first is not None else where

    def _closeness(self) -> str:
        """How close outputs that agree are: ULP alone say little where a value is the small difference of large ones."""
        beyond = sum(o.differing for o in self.outputs)
        parts = [f"{beyond} element{'' if beyond == 1 else 's'} on the other side of a rounding"] if beyond else []
        if self.max_ulp:
            share = f"{self.max_share:.0%}" if self.max_share >= 0.01 else "less than 1%"
            parts.insert(0, f"at most {self.max_ulp:.4g} ULP apart, {share} of what rounding explains")
        return ", ".join(parts) or "equal"


def check(
    original: Module,
    fused: Module,
    inputs: Sequence[Any] | None = None,
    seed: int = 0,
    backend: str = "auto",
    sanitize: bool = False,
    memory_limit: int | None = None,
) -> CheckReport:
    """Run the original in the NumPy interpreter and the other module on a backend, on the same inputs, and compare the outputs.

    inputs  one array per entry parameter, tuples flattened; drawn with the seed where none are given
    seed    of the drawn inputs and of the moved runs
    sanitize  as for `compile`
    memory_limit  bytes that may be held at once, both modules' outputs included; None: any number

    Raises what `compile` raises, EvaluationError for inputs that do not fit or (HLO402) more memory, before anything is allocated, CheckError when the modules do not take or return the same
    arrays.
    """
    _same_inputs(original, fused)
    # the moved runs are the last, with what both modules gave and the runs before
    beside = (MOVED_RUNS + 1) * sum(bytes_of(shape) for shape in original.entry.root.shape.leaves())
    check_memory(original, memory_limit, beside=beside, drawn=inputs is None)
    executable = compile(fused, backend, sanitize=sanitize, memory_limit=memory_limit)
    arrays = sample_inputs(original, seed) if inputs is None else entry_inputs(original, inputs)
    expected = Reference(original).run(arrays)
    actual = executable(*arrays)
    if len(expected) != len(actual):
        raise CheckError(f"{original.name} returns {len(expected)} arrays, {fused.name} {len(actual)}", code="HLO701")
    reports = tuple(_compare(original, arrays, expected, actual, seed))
    first = next((r.first for r in reports if not r.ok), None)
    return CheckReport(
        all(r.ok for r in reports),
        executable.backend,
        executable.why,
        f"seed {seed}" if inputs is None else "given",
        reports,
        first,
        executable.report(),
    )


def _same_inputs(original: Module, fused: Module) -> None:
    wanted, taken = ([s.without_layout() for s in entry_shapes(m)] for m in (original, fused))
    if len(wanted) != len(taken):
        raise CheckError(
            f"{original.name} takes {len(wanted)} {'array' if len(wanted) == 1 else 'arrays'}, {fused.name} {len(taken)}",
            code="HLO702",
        )
    for number, (first, second) in enumerate(zip(wanted, taken, strict=True)):
        if first != second:
            raise CheckError(
                f"input {number} is {first} for {original.name}, but {second} for {fused.name}", code="HLO702"
            )


def _compare(
    original: Module, inputs: list[Array], expected: list[Array], actual: list[Array], seed: int
) -> list[OutputReport]:
    """One report per output. The moved runs, which cost most, are left out when all outputs are equal to the last bit."""
    pairs = list(zip(expected, actual, strict=True))
    exact = [compare_output(n, e, a, bound_of(e, [])) for n, (e, a) in enumerate(pairs)]
    if all(r.ok for r in exact):
        return exact
    runs = moved_runs(original, inputs, MOVED_RUNS, seed)
    return [compare_output(n, e, a, bound_of(e, [run[n] for run in runs])) for n, (e, a) in enumerate(pairs)]
