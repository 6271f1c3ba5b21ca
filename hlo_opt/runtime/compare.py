"""Do two modules compute the same? `check` is what `--check` and `hlo-opt check` run; `hlo_opt.runtime.rounding` has the tolerance model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hlo_opt.diag import CheckError, HloOptError, UsageError
from hlo_opt.evaluate.elided import Elided, all_with_values
from hlo_opt.evaluate.footprint import bytes_of
from hlo_opt.evaluate.memory import check_memory, peak_of
from hlo_opt.evaluate.program import compile_computation
from hlo_opt.fusion.proof import prove_same_graph
from hlo_opt.ir import Module
from hlo_opt.runtime.differences import Difference, OutputReport
from hlo_opt.runtime.executable import compile, entry_inputs, entry_shapes
from hlo_opt.runtime.inputs import sample_inputs
from hlo_opt.runtime.memory import Array
from hlo_opt.runtime.reference import Reference
from hlo_opt.runtime.rounding.analysis import analyse_devices
from hlo_opt.runtime.rounding.spread import ROWS
from hlo_opt.runtime.rounding.verdict import compared


@dataclass(frozen=True)
class CheckReport:
    """Whether two modules agree, and how closely.

    backend, why  where the second module ran, and why there
    inputs        what they were run on: `seed 0` or `given`
    first         the first element beyond its bound, in the order of outputs; None when all is well
    rewritten     whether the second module computes otherwise than the original, so that roundings at other places were allowed
    """

    ok: bool
    backend: str
    why: str
    inputs: str
    outputs: tuple[OutputReport, ...]
    first: Difference | None
    report: dict[str, Any]
    rewritten: bool = False

    @property
    def max_ulp(self) -> float:
        return max((o.max_ulp for o in self.outputs), default=0.0)

    @property
    def max_share(self) -> float:
        """How much of its bound the element uses up that comes nearest to it, of all outputs."""
        return max((o.share for o in self.outputs), default=0.0)

    @property
    def weak(self) -> tuple[OutputReport, ...]:
        """The outputs whose agreement says little; `weak` of each says why."""
        return tuple(o for o in self.outputs if o.weak is not None)

    def __str__(self) -> str:
        if self.ok:
            number = len(self.outputs)
            verdict = f"agrees on {self.backend} ({self.why}), {number} output{'' if number == 1 else 's'}"
            weak = f", weak in {len(self.weak)} of them" if self.weak else ""
            return f"{verdict}, {self._closeness()}{weak}"
        where = f"differs on {self.backend} ({self.why})"
        return f"{where}: {self.first}" if self.first is not None else where

    def _closeness(self) -> str:
        """How close outputs that agree are."""
        rounded = sum(o.rounded for o in self.outputs)
        if not rounded:
            return "equal"
        far = max(self.outputs, key=lambda o: o.share)
        share = f"{far.share:.0%}" if far.share >= 0.01 else "less than 1%"
        error = max(self.outputs, key=lambda o: o.max_error)
        return (
            f"differences are {share} of the allowed rounding error: at most {error.max_error:.3g} in out{error.output}, "
            f"{rounded} element{'' if rounded == 1 else 's'} {how_they_differ(rounded, self.max_ulp)}"
        )


def how_they_differ(number: int, ulp: float) -> str:
    """What so many elements do that are at most so many ULP apart."""
    return "rounded the other way" if ulp <= 1 else f"differ{'s' if number == 1 else ''}"


def check(
    original: Module,
    fused: Module,
    inputs: Sequence[Any] | None = None,
    seed: int = 0,
    backend: str = "auto",
    sanitize: bool = False,
    memory_limit: int | None = None,
    elided: Elided = None,
) -> CheckReport:
    """Run the original in the NumPy interpreter and the other module on a backend, on the same inputs, and compare the outputs.

    inputs  one array per entry parameter, tuples flattened; drawn with the seed where none are given
    seed    of the drawn inputs and of the analysis's moved values
    sanitize  as for `compile`
    memory_limit  bytes that may be held at once, both modules' outputs included; None: any number. What the analysis of rounding takes more is looked at when it is needed
    elided  as for `evaluate`: both modules take the same values for constants of the same name

    Raises what `compile` raises, EvaluationError for inputs that do not fit or (HLO402) more memory, before anything is allocated, UsageError when they do not take the same arrays, CheckError when they do not return as many
    arrays.
    """
    original, fused = all_with_values([original, fused], elided)
    _same_inputs(original, fused)
    beside = 2 * sum(bytes_of(shape) for shape in original.entry.root.shape.leaves())
    check_memory(original, memory_limit, beside=beside, drawn=inputs is None)
    executable = compile(fused, backend, sanitize=sanitize, form="plain", memory_limit=memory_limit)
    arrays = sample_inputs(original, seed) if inputs is None else entry_inputs(original, inputs)
    expected = Reference(original).run(arrays)
    actual = executable(*arrays)
    if len(expected) != len(actual):
        raise CheckError(f"{original.name} returns {len(expected)} arrays, {fused.name} {len(actual)}", code="HLO701")
    (reports,), rewritten = compare_outputs(original, fused, [arrays], [expected], [actual], seed, memory_limit)
    first = next((r.first for r in reports if not r.ok), None)
    return CheckReport(
        all(r.ok for r in reports),
        executable.backend,
        executable.why,
        f"seed {seed}" if inputs is None else "given",
        tuple(reports),
        first,
        executable.report(),
        rewritten,
    )


def _same_inputs(original: Module, fused: Module) -> None:
    wanted, taken = ([s.without_layout() for s in entry_shapes(m)] for m in (original, fused))
    if len(wanted) != len(taken):
        arrays = f"{len(wanted)} {'array' if len(wanted) == 1 else 'arrays'}"
        raise UsageError(f"{_called(original)} takes {arrays}, {_called(fused)} {len(taken)}", code="HLO702")
    for number, (first, second) in enumerate(zip(wanted, taken, strict=True)):
        if first != second:
            raise UsageError(
                f"input {number} is {first} for {_called(original)}, but {second} for {_called(fused)}", code="HLO702"
            )


def _called(module: Module) -> str:
    """The module's name, and the file that it was read from."""
    return module.name if module.source is None else f"{module.name} in {module.source.filename}"


def compare_outputs(
    original: Module,
    other: Module,
    inputs: Sequence[Sequence[Array]],
    expected: Sequence[Sequence[Array]],
    actual: Sequence[Sequence[Array]],
    seed: int,
    memory_limit: int | None = None,
) -> tuple[list[list[OutputReport]], bool]:
    """For each device one report per output; and whether roundings at other places were allowed.

    inputs, expected, actual  per device; of one device alone, that of a list

    The original is analysed only where outputs are not equal to the last bit. Where they differ by more than its own operations explain, and the other module is not the
    same graph, it may compute otherwise: in another order, or with roundings to narrow types left out, as XLA does where it may keep excess precision
    (`xla_allow_excess_precision`, on by default). Then each rounding may be made elsewhere.
    """
    pairs = list(zip(expected, actual, strict=True))
    reports = [compared(original, e, a, None) for e, a in pairs]
    if _all_ok(reports):
        return reports, False
    beside = (ROWS + 2) * len(inputs) * peak_of(original.entry, compile_computation).bytes
    check_memory(original, memory_limit, devices=len(inputs), beside=beside)
    for rewritten in (False, True):
        analyses = analyse_devices(original, inputs, seed, rewritten=rewritten)
        reports = [compared(original, e, a, found) for (e, a), found in zip(pairs, analyses, strict=True)]
        if rewritten or _all_ok(reports) or _is_same_graph(original, other):
            break
    return reports, rewritten


def _all_ok(reports: Sequence[Sequence[OutputReport]]) -> bool:
    return all(r.ok for device in reports for r in device)


def _is_same_graph(original: Module, other: Module) -> bool:
    try:
        prove_same_graph(original, other)
    except HloOptError:
        return False
    return True
