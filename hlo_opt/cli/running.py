"""The verbs that run modules, `run`, `check` and `bench`, and what their options ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from hlo_opt.cli import files
from hlo_opt.cli.failure import report_error
from hlo_opt.cli.files import read_module, show, show_json
from hlo_opt.cli.options import (
    Whole,
    backend_option,
    dynamic_option,
    elided_option,
    file_argument,
    fuse_options,
    inputs_option,
    json_option,
    memory_option,
    offered_files,
    precise_option,
    run_options,
    sanitize_option,
    seed_option,
)
from hlo_opt.diag import UsageError

if TYPE_CHECKING:
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.cli.sizes import Sized
    from hlo_opt.evaluate.nans import ValueEvent
    from hlo_opt.ir import Module
    from hlo_opt.ir.values import Array
    from hlo_opt.runtime.check.compare import CheckReport
    from hlo_opt.runtime.executable import Executable
    from hlo_opt.runtime.family.kernels import Family


@dataclass(frozen=True)
class Running:
    """How to run. The fields are the options; not every verb has all of them."""

    backend: str
    inputs: str | None
    seed: int
    memory_limit: int | None
    elided: str | None
    sanitize: bool = False
    max_steps: int | None = None
    trace: tuple[str, ...] = ()
    check_nans: bool = False
    precise: bool = False
    file: str = ""
    """The file that the module is from: a snapshot has inputs of its own."""

    @classmethod
    def of(cls, options: Mapping[str, Any], file: str = "") -> Running:
        """From what was typed; other options than these are left to others."""
        return cls(file=file, **{f.name: options[f.name] for f in fields(cls) if f.name in options})

    @property
    def is_drawn(self) -> bool:
        """Whether no file gives inputs."""
        return self.inputs is None and not files.RECORDED.get(self.file)

    def devices(self, module: Module) -> int:
        """How many devices the module is for. Raises EvaluationError (HLO402) for too many, and where drawing inputs
        for them, because no file gives any, would take more bytes than the limit."""
        from hlo_opt.evaluate.memory import check_drawing
        from hlo_opt.ops.collective.module_devices import check_devices

        devices = check_devices(module)
        if self.is_drawn:
            check_drawing(module, self.memory_limit, devices=devices)
        return devices

    def inputs_of_each(self, module: Module) -> list[list[Array]]:
        """The inputs of each of the module's devices: those in an npz file, else those in the snapshot that the module
        is from, else drawn. Raises as `load_device_inputs`."""
        from hlo_opt.cli.arrays import load_device_inputs, snapshot_inputs
        from hlo_opt.evaluate.devices import device_inputs

        if self.inputs is not None:
            return load_device_inputs(self.inputs, module)
        if self.is_drawn:
            return device_inputs(module, self.seed)
        return snapshot_inputs(self.file, module, files.RECORDED[self.file])

    def compare(self, module: Module, second: Module) -> CheckReport:
        """Run both on the same inputs, those in the file or drawn ones. Raises as `runtime.check.compare.check` and
        `load_device_inputs` do."""
        from hlo_opt.runtime.check.compare import check, on_named_devices

        inputs: list[Any] | None = None
        if not self.is_drawn:
            module, second = on_named_devices(module, second)
            inputs = self.inputs_of_each(module)
        return check(
            module,
            second,
            inputs=inputs[0] if inputs is not None and len(inputs) == 1 else inputs,
            seed=self.seed,
            backend=self.backend,
            sanitize=self.sanitize,
            memory_limit=self.memory_limit,
            elided=self.elided,
            precise=self.precise,
        )


@click.command("run")
@file_argument
@backend_option
@click.option(
    "--inputs",
    metavar="IN.npz",
    help="Inputs as in0, in1, ...; in0.d3 is for simulated device 3 alone. Without it they are drawn.",
)
@seed_option
@click.option("--outputs", metavar="OUT.npz", help="Write the outputs as out0, out1, ... instead of printing them.")
@click.option(
    "--trace",
    metavar="NAME",
    multiple=True,
    help="Print the value of this instruction each time it is evaluated; may be repeated, or name several: a,b.",
)
@click.option(
    "--check-nans", is_flag=True, help="Stop at the first NaN and say which instruction computed it; exit status 1."
)
@memory_option
@click.option(
    "--max-steps",
    metavar="N",
    type=Whole(min=0),
    help="Stop when the loops have taken N iterations, all together.  [default: no limit]",
)
@click.option(
    "--profile",
    metavar="OUT.json",
    help="Time each launch (host or cupy): a trace for Chrome or Perfetto in OUT.json, a table on stderr.",
)
@sanitize_option
@elided_option
@precise_option
@dynamic_option
def run_command(file: str, outputs: str | None, profile: str | None, dynamic: tuple[str, ...], **options: Any) -> None:
    """Run FILE without fusing it, and print its outputs, or write them with --outputs.

    A module with replica_count or num_partitions above 1 runs on as many simulated devices, which take turns. An output
    that is the same on all of them is stored once, as out0; others once for each device, as out0.d0, out0.d1, ... Types
    that NumPy lacks are stored as their raw bits. Reports on stderr which backend ran.

    With --dynamic the inputs say the size, and the kernels are for all sizes of the range; drawn inputs have the size
    that prices are for.
    """
    files.check_writable(outputs)
    files.check_writable(profile)
    module = read_module(file)
    from hlo_opt.cli import arrays
    from hlo_opt.evaluate.elided import with_values
    from hlo_opt.report.runs import outputs_page

    how = Running.of(options, file)
    module = with_values(module, how.elided)
    if dynamic:
        results = _of_any_size(module, dynamic, profile, how)
    else:
        results = _of_its_size(module, profile, how)
    named = arrays.named_outputs(results)
    if outputs is None:
        show(outputs_page(named))
    else:
        arrays.save_outputs(outputs, named)


def _of_its_size(module: Module, profile: str | None, how: Running) -> list[list[Array]]:
    """The outputs of each device, for the sizes that the text says."""
    wish = "host" if how.sanitize and how.backend == "auto" else how.backend
    name, why = _backend(module, wish, bool(how.trace or how.check_nans))
    if how.sanitize and name != "host":
        raise UsageError(f"the sanitizers run on backend host, not {name}", code="HLO322")
    if profile is not None:
        return _profiled(module, name, profile, how)
    return _in_numpy(module, why, how) if name == "numpy" else _compiled(module, name, why, how)


def _of_any_size(module: Module, dynamic: tuple[str, ...], profile: str | None, how: Running) -> list[list[Array]]:
    """The outputs, by kernels for a range of sizes. Raises UsageError for what needs one size."""
    from hlo_opt.cli.sizes import Sized, size_page
    from hlo_opt.report.runs import run_page
    from hlo_opt.runtime.family.kernels import SizedExecutable, family

    if profile is not None or how.sanitize or how.trace or how.check_nans or how.max_steps is not None:
        raise UsageError("--dynamic takes no --profile, --sanitize, --trace, --check-nans and --max-steps")
    sized = Sized.of(module, dynamic)
    if how.devices(sized.module) > 1:
        raise UsageError("--dynamic runs a module on one device")
    kernels = family(sized.original)
    executable = SizedExecutable(kernels, how.backend, precise=how.precise)
    size = sized.priced if how.inputs is None else _size_of_file(how.inputs, sized)
    at = executable.at(size)
    (inputs,) = how.inputs_of_each(at.module)
    results = [at(*inputs)]
    show(size_page(sized, kernels), err=True)
    show(run_page(at), err=True)
    return results


def _size_of_file(name: str, sized: Sized) -> int:
    """The size that the inputs of an npz file have. Raises UsageError for none, and for several."""
    from hlo_opt.cli.arrays import input_dimensions

    return sized.original.dimensions(input_dimensions(name, sized.original.module))


def _backend(module: Module, wish: str, watches: bool) -> tuple[str, str]:
    """The backend for a wish, and why. Raises UsageError for one that cannot do what is asked for: only NumPy shows
    values and takes arrays of any size."""
    from hlo_opt.runtime.executable import choose_backend, of_any_size

    needs = "--trace and --check-nans look at every value" if watches else ""
    open_one = of_any_size(module)
    needs = needs or (f"the size of {open_one.name} is open" if open_one is not None else "")
    name, why = choose_backend("numpy" if needs and wish == "auto" else wish)
    if not needs:
        return name, why
    if name != "numpy":
        raise UsageError(
            f"{needs}, and backend {name} cannot do that",
            code="HLO321",
            hint="--backend numpy evaluates every instruction",
        )
    return name, needs if wish == "auto" else why


def _in_numpy(module: Module, why: str, how: Running) -> list[list[Any]]:
    """The outputs of each device, by the interpreter."""
    from hlo_opt.cli import arrays
    from hlo_opt.evaluate import evaluate, evaluate_devices
    from hlo_opt.evaluate.memory import check_memory
    from hlo_opt.ops.collective.module_devices import check_devices
    from hlo_opt.report.runs import TracedInstructions, numpy_page

    names = [name for wish in how.trace for name in wish.split(",") if name]
    trace = TracedInstructions(module, names)
    devices = check_devices(module)
    inputs = None if how.inputs is None else arrays.inputs_bytes(how.inputs, module)
    check_memory(module, how.memory_limit, devices=devices, inputs=inputs, drawn=how.is_drawn)

    def watch(event: ValueEvent) -> None:
        page = trace.page(event)
        if page is not None:
            show(page)

    settings: dict[str, Any] = {"max_steps": how.max_steps, "check_nans": how.check_nans}
    settings["watch"] = watch if names else None
    several = how.inputs_of_each(module)
    results = (
        evaluate_devices(module, several, **settings) if devices > 1 else [evaluate(module, several[0], **settings)]
    )
    show(trace.rest(), err=True)
    show(numpy_page(why, module, how.check_nans), err=True)
    return results


def _compiled(module: Module, backend: str, why: str, how: Running) -> list[list[Any]]:
    """The outputs of each device, by kernels."""
    from hlo_opt.report.runs import run_page
    from hlo_opt.runtime.executable import compile

    how.devices(module)
    executable = compile(
        module,
        backend,
        max_steps=how.max_steps,
        memory_limit=how.memory_limit,
        sanitize=how.sanitize,
        precise=how.precise,
    )
    executable.why = why
    results = executable.run_devices(how.inputs_of_each(module))
    show(run_page(executable), err=True)
    return results


def _profiled(module: Module, backend: str, file: str, how: Running) -> list[list[Any]]:
    """The outputs of each device; a trace of their launches goes to a file, a table to stderr."""
    if how.sanitize:
        raise UsageError(
            "--profile and --sanitize do not go together: sanitizers make every launch slow", code="HLO343"
        )
    if backend == "numpy":
        raise UsageError("--profile times kernels; backend numpy launches none", code="HLO342", hint="--backend host")
    import json

    from hlo_opt.report.runs import profile_page
    from hlo_opt.runtime.measure.profile import profile
    from hlo_opt.runtime.schedule import build_schedule
    from hlo_opt.runtime.schedule.lifetimes import check_schedule

    devices = how.devices(module)
    check_schedule(build_schedule(module), how.memory_limit, devices=devices)
    inputs = how.inputs_of_each(module)
    results, timings = profile(module, backend, inputs, max_steps=how.max_steps, precise=how.precise)
    show(profile_page(timings), err=True)
    files.write_text(file, json.dumps(timings.trace()) + "\n")
    return results


@click.command("check")
@file_argument
@click.argument("other", shell_complete=offered_files, required=False)
@fuse_options
@backend_option
@inputs_option
@seed_option
@memory_option
@sanitize_option
@elided_option
@precise_option
@dynamic_option
@click.option("--strict", is_flag=True, help="Also exit with 1 if an output is weak.")
@click.option(
    "--expect-fused",
    metavar="A,B",
    multiple=True,
    help="Run nothing; exit with 1 where these instructions are not in one kernel of the result, and say why. May be "
    "repeated.",
)
def check_command(
    file: str,
    other: str | None,
    dynamic: tuple[str, ...],
    strict: bool,
    expect_fused: tuple[str, ...],
    **options: Any,
) -> int:
    """Run FILE (the reference, in NumPy) and OTHER (on the backend) on the same inputs and compare. Without OTHER, the
    fused form of FILE.

    Outputs may differ by rounding: each element has its own bound. Exit status 1 when one differs by more. An output is
    called weak where agreement says little: its bound is above 5 % of its value, or it is constant, NaN, or does not
    depend on the inputs.

    --expect-fused runs nothing: it checks that instructions are in one kernel of the result.

    With --dynamic the kernels of FILE's fused form are for all sizes of a range, and five of them are tried.
    """
    from hlo_opt.cli.fusing import Fusing

    if expect_fused:
        return _expect(file, other, expect_fused, Fusing.of(options))
    module = read_module(file)
    running = Running.of(options, file)
    if dynamic or (other is None and running.is_drawn):
        from hlo_opt.cli.sizes import Sized

        sized = Sized.wanted(module, dynamic)
        if sized is not None:
            return _sized(sized, other, strict, Fusing.of(options), running)
    second = Fusing.of(options).run(module).outcome.module if other is None else read_module(other)
    from hlo_opt.report.runs import check_page

    result = Running.of(options, file).compare(module, second)
    show(check_page(result))
    return 0 if result.ok and not (strict and result.weak) else 1


def _sized(sized: Sized, other: str | None, strict: bool, fusing: Fusing, running: Running) -> int:
    """Whether the kernels for a range of sizes agree with the module at several. Returns the exit status."""
    from hlo_opt.cli.sizes import checked_page, size_page

    if other is not None:
        raise UsageError("--dynamic is about what fusing FILE gives, and takes no OTHER")
    _, kernels = sized.fuse(fusing, running.memory_limit)
    show(size_page(sized, kernels))
    results = sized.check(kernels, running)
    show(checked_page(results))
    return 0 if all(r.ok and not (strict and r.weak) for r in results.values()) else 1


def _expect(file: str, other: str | None, texts: tuple[str, ...], fusing: Fusing) -> int:
    """Whether instructions ended in one kernel. Returns the exit status."""
    from hlo_opt.report.holding import apart, expected, together_page

    if other is not None:
        raise UsageError("--expect-fused is about what fusing FILE gives, and takes no OTHER")
    groups = expected(texts)
    report = fusing.run(read_module(file))
    faults = [fault for group in groups if (fault := apart(report, group)) is not None]
    if not faults:
        show(together_page(groups))
    return max(map(report_error, faults), default=0)


@click.command("bench")
@file_argument
@fuse_options
@run_options
@click.option(
    "--rounds",
    metavar="N",
    type=Whole(min=1, max=10_000),
    default=11,
    show_default=True,
    help="How often each module runs with cold and with warm caches.",
)
@dynamic_option
@json_option
@click.option("--plot", metavar="OUT.svg|png", help="Draw the times. A PNG needs the extra `plot`.")
def bench_command(
    file: str, rounds: int, dynamic: tuple[str, ...], as_json: bool, plot: str | None, **options: Any
) -> None:
    """Run FILE and its fused form in turn, and compare their times with each other and with a plain copy on the same
    device.

    Each round runs each module twice: once after the last-level cache was emptied (cold), once straight after that
    (warm). On a GPU inputs and outputs stay there, and launches are queued before the clock starts. A module for
    several devices runs on all of them, which take turns; the times are for all of them together.

    With --dynamic both have the size that prices are for, and the kernels for all sizes run at it, too.
    """
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.cli.sizes import Sized, size_page

    if plot is not None and not plot.endswith((".svg", ".png")):
        raise UsageError("a plot ends in .svg or .png", filename=plot, code="HLO341")
    files.check_writable(plot)
    module, request = read_module(file), Fusing.of(options)
    running = Running.of(options, file)
    sized = Sized.of(module, dynamic) if dynamic else None
    compiled: Callable[[str], dict[str, Executable]] | None = None
    if sized is None:
        fused = request.run(module).outcome.module
    else:
        report, kernels = sized.fuse(request, running.memory_limit)
        module, fused = sized.module, report.outcome.module
        if running.elided is not None or running.devices(module) > 1:
            raise UsageError("--dynamic times a module on one device, without --elided")
        compiled = partial(_of_all_sizes, kernels, sized.priced, running.precise)
        show(size_page(sized, kernels), err=True)
    from hlo_opt.evaluate.elided import all_with_values
    from hlo_opt.report import runs
    from hlo_opt.runtime.measure.bench import bench

    module, fused = all_with_values([module, fused], running.elided)
    running.devices(module)
    inputs = running.inputs_of_each(module)
    both = {"unfused": module, "fused": fused}
    timing = bench(
        both,
        running.backend,
        inputs,
        rounds,
        memory_limit=running.memory_limit,
        precise=running.precise,
        compiled=compiled,
    )
    if plot is not None:
        drawn = runs.bench_svg(timing).encode() if plot.endswith(".svg") else runs.bench_png(timing)
        with files.whole_file(plot) as stream:
            stream.write(drawn)
    if as_json:
        show_json(timing.as_json())
    else:
        show(runs.bench_page(timing))


def _of_all_sizes(kernels: Family, size: int, precise: bool, backend: str) -> dict[str, Executable]:
    """The kernels for all sizes, at one of them."""
    from hlo_opt.runtime.family.kernels import SizedExecutable

    return {"all sizes": SizedExecutable(kernels, backend, precise=precise).at(size)}
