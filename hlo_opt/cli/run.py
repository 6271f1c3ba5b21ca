"""`hlo-opt run`: run a module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hlo_opt.cli import completion, files
from hlo_opt.cli.console import show
from hlo_opt.cli.module import read_module
from hlo_opt.cli.options import backend_option, elided_option, memory_option, sanitize_option, seed_option
from hlo_opt.diag.errors import UsageError

if TYPE_CHECKING:
    from hlo_opt.cli.running import Running
    from hlo_opt.evaluate.watch import Event
    from hlo_opt.ir import Module


@click.command("run")
@click.argument("file", shell_complete=completion.file)
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
@click.option("--check-nans", is_flag=True, help="Stop at the first NaN and say where it was born; exit status 1.")
@memory_option
@click.option(
    "--max-steps",
    metavar="N",
    type=click.IntRange(min=0),
    help="Stop when the loops have taken N iterations, all together.  [default: no limit]",
)
@click.option(
    "--profile",
    metavar="OUT.json",
    help="Time each launch (host or cupy): a trace for Chrome or Perfetto in OUT.json, a table on stderr.",
)
@sanitize_option
@elided_option
def command(file: str, outputs: str | None, profile: str | None, **options: Any) -> None:
    """Run FILE as it is (nothing is fused first) and print its outputs, or write them with --outputs.

    A module with replica_count or num_partitions above 1 runs on as many simulated devices, which take turns. An output that is the same on all of them
    comes once, as out0, another one for each device, as out0.d0, out0.d1, ...
    Types that NumPy lacks are stored as their raw bits. Reports on stderr which backend ran.
    """
    files.check_writable(outputs)
    files.check_writable(profile)
    module = read_module(file)
    from hlo_opt.cli import arrays
    from hlo_opt.cli.running import Running
    from hlo_opt.evaluate.elided import with_values
    from hlo_opt.report.runs import outputs_page

    how = Running.of(options)
    module = with_values(module, how.elided)

    wish = "host" if how.sanitize and how.backend == "auto" else how.backend
    name, why = _backend(module, wish, bool(how.trace or how.check_nans))
    if how.sanitize and name != "host":
        raise UsageError(f"the sanitizers run on backend host, not {name}", code="HLO322")
    if profile is not None:
        results = _profiled(module, name, profile, how)
    elif name == "numpy":
        results = _in_numpy(module, why, how)
    else:
        results = _compiled(module, name, why, how)
    named = arrays.named_outputs(results)
    if outputs is None:
        show(outputs_page(named))
    else:
        arrays.save_outputs(outputs, named)


def _backend(module: Module, wish: str, watches: bool) -> tuple[str, str]:
    """The backend for a wish, and why. Raises UsageError for one that cannot do what is asked for: only NumPy shows values and takes arrays of any size."""
    from hlo_opt.runtime import choose_backend
    from hlo_opt.runtime.executable import of_any_size

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
    from hlo_opt.report.runs import numpy_page
    from hlo_opt.report.trace import Trace

    names = [name for wish in how.trace for name in wish.split(",") if name]
    trace = Trace(module, names)
    devices = check_devices(module)
    given = None if how.inputs is None else arrays.inputs_bytes(how.inputs, module)
    check_memory(module, how.memory_limit, devices=devices, inputs=given, drawn=how.inputs is None)

    def watch(event: Event) -> None:
        page = trace.page(event)
        if page is not None:
            show(page)

    settings: dict[str, Any] = {"max_steps": how.max_steps, "check_nans": how.check_nans}
    settings["watch"] = watch if names else None
    several = how.given(module)
    results = (
        evaluate_devices(module, several, **settings) if devices > 1 else [evaluate(module, several[0], **settings)]
    )
    show(trace.rest(), err=True)
    show(numpy_page(why, module, how.check_nans), err=True)
    return results


def _compiled(module: Module, backend: str, why: str, how: Running) -> list[list[Any]]:
    """The outputs of each device, by kernels."""
    from hlo_opt.report.runs import run_page
    from hlo_opt.runtime import compile

    how.devices(module)
    executable = compile(module, backend, max_steps=how.max_steps, memory_limit=how.memory_limit, sanitize=how.sanitize)
    executable.why = why
    results = executable.run_devices(how.given(module))
    show(run_page(executable), err=True)
    return results


def _profiled(module: Module, backend: str, file: str, how: Running) -> list[list[Any]]:
    """The outputs of each device; a trace of their launches goes to a file, a table to stderr."""
    if how.sanitize:
        raise UsageError(
            "--profile and --sanitize do not go together: sanitizers make every launch slow", code="HLO343"
        )
    if backend == "numpy":
        raise UsageError("--profile times kernels, and backend numpy has none", code="HLO342", hint="--backend host")
    import json

    from hlo_opt.report.timings import profile_page
    from hlo_opt.runtime.measure.profile import profile
    from hlo_opt.runtime.schedule import build_schedule
    from hlo_opt.runtime.schedule.footprint import check_schedule

    devices = how.devices(module)
    check_schedule(build_schedule(module), how.memory_limit, devices=devices)
    given = how.given(module)
    results, found = profile(module, backend, given, max_steps=how.max_steps)
    show(profile_page(found), err=True)
    files.write_text(file, json.dumps(found.trace()) + "\n")
    return results
