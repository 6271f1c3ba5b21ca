"""Do two modules compute the same? `check` is what `--check` and `hlo-opt check` run; `hlo_opt.runtime.rounding` has
the tolerance model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hlo_opt.analysis.graph.loops import has_open_loop
from hlo_opt.diag import CheckError, EvaluationError, HloOptError, UsageError
from hlo_opt.evaluate.devices import device_inputs, evaluate_devices, spread
from hlo_opt.evaluate.elided import Elided, all_with_values
from hlo_opt.evaluate.interpreter import EndlessError
from hlo_opt.evaluate.memory import bytes_of, check_memory, inputs_bytes, peak_of
from hlo_opt.evaluate.program import compile_computation
from hlo_opt.evaluate.reach import MOST_DRAWS, MOST_TRIED, Draw, Way, reaching_inputs
from hlo_opt.fusion.proof import prove_same_graph
from hlo_opt.ir import Module
from hlo_opt.ir.values import Array
from hlo_opt.ops.collective.module_devices import (
    check_devices,
    counts,
    depends_on_devices,
    for_devices,
    named,
    tells_devices_apart,
)
from hlo_opt.ops.control.meaning import same_bits
from hlo_opt.ops.values import ROWS
from hlo_opt.runtime.check.forms import CheckedForms, being_built, built, forms_of, kernel_at_fault
from hlo_opt.runtime.check.mistakes import Tried, tried
from hlo_opt.runtime.differences import ElementDifference, OutputReport, over_devices, over_draws, over_forms
from hlo_opt.runtime.executable import Executable, entry_inputs, entry_shapes
from hlo_opt.runtime.host.crashes import crashes_told
from hlo_opt.runtime.numpy import Reference
from hlo_opt.runtime.rounding.analysis import Analysis, analyse_devices
from hlo_opt.runtime.rounding.verdict import compared

Analyses = dict[bool, list[Analysis]]
"""The analyses of the original on some inputs, on every device, by whether the other module may round elsewhere."""

OPEN_STEPS = 300_000
"""Iterations that the original's loops may take on drawn inputs, where the trip count of one is unknown: it may never
end. Known counts end by themselves."""
MORE_STEPS, TIMES_STEPS = 100_000, 16
"""Iterations of loops that another module may take, and how many more for each iteration of the original."""


@dataclass(frozen=True)
class CheckReport:
    """Whether two modules agree, and how closely.

    backend, why  where the second module ran, and why there
    inputs        the inputs of both: `seed 0` or `given`
    first         the first element beyond its bound, in the order of outputs; None when all agree
    rewritten     whether the second module computes in another way, so that roundings at other places were allowed
    devices       replicas and partitions that both ran on
    note          any other remark about the run
    draws         how many sets of inputs were used
    unreached     what none of the inputs reached (a choice of a select, a branch of a conditional), and faults in the
                  original that these outputs would not show
    trials        how many faults were injected to find those
    forms         on the host, the forms of kernels that ran: `plain`, the emitted text, and `lanes`, which `run`,
                  `bench` and the hook for JAX run. Elsewhere none
    wrong         the forms among these that differ
    kernel        where the lanes form alone differs: the kernel at fault and what it computes; empty where it is not
                  known
    """

    ok: bool
    backend: str
    why: str
    inputs: str
    outputs: tuple[OutputReport, ...]
    first: ElementDifference | None
    report: dict[str, Any]
    rewritten: bool = False
    devices: tuple[int, int] = (1, 1)
    note: str = ""
    draws: int = 1
    unreached: tuple[Way, ...] = ()
    trials: int = 0
    forms: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    kernel: str = ""

    @property
    def max_ulp(self) -> float:
        return max((o.max_ulp for o in self.outputs), default=0.0)

    @property
    def weak(self) -> tuple[OutputReport, ...]:
        """The outputs whose agreement proves little; `weak` of each says why."""
        return tuple(o for o in self.outputs if o.weak is not None)

    def __str__(self) -> str:
        if self.ok:
            number, devices = len(self.outputs), math.prod(self.devices)
            times = f" on {devices} devices" if devices > 1 else ""
            verdict = f"agrees on {self._place()}, {number} output{'' if number == 1 else 's'}{times}"
            weak = f", weak in {len(self.weak)} of them" if self.weak else ""
            return f"{verdict}, {self._closeness()}{weak}"
        where = f"differs on {self._place()}"
        return f"{where}: {self.first}" if self.first is not None else where

    def _place(self) -> str:
        """The backend, with the forms of kernels that the verdict is about, and why it is this backend."""
        forms = self.forms if self.ok else self.wrong
        words = "" if not forms else "in both forms " if len(forms) > 1 else f"in the {forms[0]} form "
        alone = "only " if not self.ok and len(forms) < len(self.forms) else ""
        return f"{self.backend} {words}{alone}({self.why})"

    def _closeness(self) -> str:
        """How close agreeing outputs are, in words."""
        rounded = sum(o.rounded for o in self.outputs)
        if not rounded:
            return "equal"
        far = max(self.outputs, key=lambda o: o.share)
        share = f"{100 * far.share:.0f} %" if far.share >= 0.01 else "less than 1 %"
        error = max(self.outputs, key=lambda o: o.max_error)
        return (
            f"differences are {share} of the allowed rounding error: at most {error.max_error:.3g} in "
            f"out{error.output}, "
            f"{rounded} element{'' if rounded == 1 else 's'} {how_they_differ(rounded, self.max_ulp)}"
        )


def how_they_differ(number: int, ulp: float) -> str:
    """What `number` elements do that are at most `ulp` ULP apart, in words."""
    return "rounded the other way" if ulp <= 1 else f"differ{'s' if number == 1 else ''}"


def check(
    original: Module,
    fused: Module,
    inputs: Sequence[Any] | Sequence[Sequence[Any]] | None = None,
    seed: int = 0,
    backend: str = "auto",
    sanitize: bool = False,
    memory_limit: int | None = None,
    elided: Elided = None,
    precise: bool = False,
    executable: Executable | None = None,
    form: CheckedForms = "both",
) -> CheckReport:
    """Run the original in the NumPy interpreter and the other module on a backend, on the same inputs, and compare.

    Both run on all their devices. On the host the other module runs in both forms of its kernels.

    inputs  one array per entry parameter, tuples flattened. For modules with several devices, a list of these with an
            entry per device or one for all. Without inputs, several sets are drawn: see `reaching_inputs`
    seed    of the drawn inputs, and of the analysis of rounding
    sanitize, precise  as for `compile`
    memory_limit  bytes that may be held at once, including both modules' outputs; None: unlimited. The analysis of
            rounding checks its own needs when it starts
    elided  as for `evaluate`: constants of the same name get the same values in both modules
    executable  the other module, compiled already, in one form; None: it is compiled for the backend
    form    on the host: `plain` or `lanes` alone (see `compile`), or both. With `sanitize` always `plain`

    Raises what `compile` and `run_devices` raise; EvaluationError for inputs that do not fit, or (HLO402, before
    anything is allocated) for want of memory; UsageError when the modules take different arrays or are for different
    devices; CheckError when they return different numbers of arrays, or loops of the other module do not end where the
    original's do.
    """
    original, fused = all_with_values([original, fused], elided)
    _same_inputs(original, fused)
    per_device = [inputs] if inputs is not None and counts(original) == (1, 1) else inputs
    both = on_named_devices(original, fused)
    how: dict[str, Any] = {
        "seed": seed,
        "backend": backend,
        "sanitize": sanitize,
        "memory_limit": memory_limit,
        "precise": precise,
        "executable": executable,
        "form": form,
    }
    try:
        return _checked(*both, per_device, **how)
    except EvaluationError as error:  # fall back on the devices of the header, which are certain
        if both[0] is original or not (error.code == "HLO402" or _gets_stuck(both[0], per_device, seed)):
            raise
        remark = (
            f"its collectives name {math.prod(counts(both[0]))} devices, which cannot be simulated "
            "together "
            f"({error.code})"
        )
        return replace(_checked(original, fused, per_device, **how), note=f"only on one device: {remark}")


def _gets_stuck(module: Module, inputs: Sequence[Sequence[Any]] | None, seed: int) -> bool:
    """Whether the devices of a module deadlock."""
    try:
        evaluate_devices(module, device_inputs(module, seed) if inputs is None else inputs)
    except EvaluationError as error:
        return error.code == "HLO405"
    return False


def _checked(
    original: Module,
    fused: Module,
    inputs: Sequence[Sequence[Any]] | None,
    *,
    seed: int,
    backend: str,
    sanitize: bool,
    memory_limit: int | None,
    precise: bool,
    executable: Executable | None,
    form: CheckedForms,
) -> CheckReport:
    devices = check_devices(original)
    runs = 1 if executable is not None else len(forms_of(form, backend, sanitize=sanitize))
    beside = (1 + runs) * devices * sum(bytes_of(shape) for shape in original.entry.root.shape.leaves())
    check_memory(original, memory_limit, devices=devices, beside=beside, drawn=inputs is None)
    with (
        being_built(fused, backend, form, sanitize=sanitize, precise=precise, memory_limit=memory_limit)
        if executable is None
        else built(executable)
    ) as build:
        trials_done = (
            reached(original, seed, memory_limit) if inputs is None else _with_outputs(original, inputs, devices)
        )
        most = None if trials_done.steps is None else MORE_STEPS + TIMES_STEPS * trials_done.steps
        executables = build(most)
    by_form: dict[str, list[list[OutputReport]]] = {own: [] for own in executables}
    wrong: list[str] = []
    kernel = ""
    rewritten = False
    for draw in trials_done.draws:
        known: Analyses = {}
        for own_form, one in executables.items():
            actual = _run_to_end(one, original, fused, draw, trials_done.steps, most)
            by_device, moved = compare_outputs(
                original,
                fused,
                draw.inputs,
                draw.outputs,
                actual,
                seed,
                memory_limit,
                precise=one.precise,
                known=known,
            )
            by_form[own_form].append([over_devices(own) for own in zip(*by_device, strict=True)])
            rewritten = rewritten or moved
            if not _all_ok(by_device):
                wrong.append(own_form)
        if wrong:
            if wrong == ["lanes"] and len(executables) > 1 and devices == 1:
                kernel = kernel_at_fault(executables["lanes"], draw.inputs[0], most)
            break
    reports = tuple(
        over_forms(of_forms)
        for of_forms in zip(
            *([over_draws(own) for own in zip(*by_draw, strict=True)] for by_draw in by_form.values()), strict=True
        )
    )
    if devices > 1 and all(_tells_nothing(original, draw.inputs) for draw in trials_done.draws):
        reports = tuple(replace(r, weak=r.weak or "all devices have the same inputs") for r in reports)
    first = next((r.first for r in reports if not r.ok), None)
    main = next(iter(executables.values()))
    return CheckReport(
        all(r.ok for r in reports),
        main.backend,
        main.why,
        f"seed {seed}" if inputs is None else "given",
        reports,
        first,
        main.report(),
        rewritten,
        counts(original),
        draws=max(map(len, by_form.values())),
        unreached=trials_done.unseen,
        trials=trials_done.trials,
        forms=tuple(filter(None, executables)),
        wrong=tuple(filter(None, wrong)),
        kernel=kernel,
    )


def _run_to_end(
    executable: Executable, original: Module, fused: Module, draw: Draw, steps: int | None, most: int | None
) -> list[list[Array]]:
    """The outputs on every device. Raises CheckError where loops take more than `most` iterations, those of the
    original `steps`, or where the module returns another number of arrays."""
    try:
        with crashes_told(executable.backend == "host"):
            actual = executable.run_devices(draw.inputs)
    except EndlessError as error:
        raise CheckError(
            f"loops of {fused.name} go on after {most} iterations; those of {original.name} end after {steps}",
            span=error.span,
        ) from error
    wanted, got = len(draw.outputs[0]), len(actual[0])
    if wanted != got:
        raise CheckError(f"{original.name} returns {wanted} arrays, {fused.name} {got}", code="HLO701")
    return actual


def reached(original: Module, seed: int = 0, memory_limit: int | None = None) -> Tried:
    """Inputs that reach as many branches and show as many faults as possible; a single draw where memory is short."""
    devices = check_devices(original)
    steps = OPEN_STEPS if has_open_loop(original) else None
    sets = MOST_TRIED * (inputs_bytes(original) + bytes_of(original.entry.root.shape))
    try:
        check_memory(
            original, memory_limit, devices=devices, beside=devices * sets + _analysis_bytes(original, devices)
        )
    except EvaluationError:
        reach = reaching_inputs(original, seed, most=1, max_steps=steps)
        return Tried(reach.draws, reach.unreached)
    reach = reaching_inputs(original, seed, most=MOST_DRAWS, max_steps=steps)
    outcome = tried(original, reach, seed, MOST_DRAWS)
    return replace(outcome, unseen=reach.unreached + outcome.unseen)


def _analysis_bytes(module: Module, devices: int) -> int:
    """Bytes that the analysis of rounding holds."""
    return (ROWS + 2) * devices * peak_of(module.entry, compile_computation).bytes


def _with_outputs(original: Module, inputs: Sequence[Sequence[Any]], devices: int) -> Tried:
    """The caller's inputs, with the original's outputs for them."""
    arrays = [entry_inputs(original, own) for own in spread(original, inputs)]
    outputs = evaluate_devices(original, arrays) if devices > 1 else [Reference(original).run(arrays[0])]
    return Tried((Draw(arrays, outputs),))


def on_named_devices(original: Module, fused: Module) -> tuple[Module, Module]:
    """Both modules, copied for the devices that they are checked on if necessary.

    These are the devices of the headers, or where the headers say one, those that the original's collectives name:
    of what is rewritten fewer may be left. Raises UsageError (HLO702) for headers that differ.
    """
    wanted, other = counts(original), counts(fused)
    if wanted != other:
        sizes = [f"{r} x {p} devices" for r, p in (wanted, other)]
        raise UsageError(f"{original.name} is for {sizes[0]}, {fused.name} for {sizes[1]}", code="HLO702")
    devices = named(original)
    if devices == (1, 1):
        devices = named(fused)
    return for_devices(original, devices), for_devices(fused, devices)


def _tells_nothing(module: Module, inputs: Sequence[Sequence[Array]]) -> bool:
    """Whether a module has collectives but nothing tells its devices apart, so that no output shows who sent what."""
    if any(not same_bits(a, b) for own in inputs[1:] for a, b in zip(inputs[0], own, strict=True)):
        return False
    return depends_on_devices(module) is not None and not tells_devices_apart(module)


def _same_inputs(original: Module, fused: Module) -> None:
    wanted, shapes = ([s.without_layout() for s in entry_shapes(m)] for m in (original, fused))
    if len(wanted) != len(shapes):
        arrays = f"{len(wanted)} {'array' if len(wanted) == 1 else 'arrays'}"
        raise UsageError(
            f"{_called(original)} takes {arrays}, {_called(fused)} {len(shapes)}",
            code="HLO702",
            hint="check compares two forms of one program: both must take the same arrays",
        )
    for number, (first, second) in enumerate(zip(wanted, shapes, strict=True)):
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
    *,
    precise: bool = True,
    known: Analyses | None = None,
) -> tuple[list[list[OutputReport]], bool]:
    """The reports of all outputs, per device, and whether roundings at other places were allowed.

    inputs, expected, actual  a list per device
    precise  whether the other module's backend divides as the host does (`Executable.precise`)
    known    the analyses on these inputs so far, for another comparison; it grows

    The original is analysed only if some output differs in its bits. If differences exceed the rounding of its own
    operations, and the other module is not the same graph, that module may compute in another order, or without some
    roundings to narrow types, as XLA does with excess precision (`xla_allow_excess_precision`, on by default). Then
    each rounding is allowed at other places.
    """
    pairs = list(zip(expected, actual, strict=True))
    reports = [compared(original, e, a, None) for e, a in pairs]
    if _all_ok(reports):
        return reports, False
    devices, known = len(inputs), {} if known is None else known
    check_memory(original, memory_limit, devices=devices, beside=_analysis_bytes(original, devices))
    for rewritten in (False, True):
        if rewritten not in known:
            known[rewritten] = analyse_devices(original, inputs, seed, rewritten=rewritten, precise=precise)
        reports = [compared(original, e, a, own) for (e, a), own in zip(pairs, known[rewritten], strict=True)]
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
