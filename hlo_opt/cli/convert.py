"""The verb `convert`: a module from one form into another."""

from __future__ import annotations

import gzip
import re
from typing import TYPE_CHECKING

import click

from hlo_opt.cli import failure, files
from hlo_opt.cli.options import file_argument, forms_offered, offered_files
from hlo_opt.diag import UsageError, did_you_mean

if TYPE_CHECKING:
    from hlo_opt.forms.kinds import Form
    from hlo_opt.ir import Module

TO = ("hlo", "pb", "hlo.pb", "mlir", "mlirbc")
"""What `--to` takes; as suffixes of a file they mean the same, and `.txt` means hlo."""

NO_FORM, ELIDED = "HLO308", "HLO309"

CONFIGURED = (
    *("replica_count", "num_partitions", "allow_spmd_sharding_propagation_to_parameters"),
    *("allow_spmd_sharding_propagation_to_output", "alias_passthrough_params"),
)
"""What a text's header has of a module's configuration, which only the text holds."""


@click.command(__name__.rpartition(".")[2])
@file_argument
@click.argument("output", metavar="OUT", shell_complete=offered_files)
@click.option(
    "--to",
    metavar="FORM",
    shell_complete=forms_offered,
    help="hlo, pb, hlo.pb, mlir or mlirbc.  [default: as OUT's name ends]",
)
@click.option("--recorded", metavar="OUT.npz", help="Write the inputs that a snapshot holds: in0, in1, ...")
def convert_command(file: str, output: str, to: str | None, recorded: str | None) -> None:
    """Write FILE as OUT in another form: HLO text (hlo), an HloModuleProto (pb), an HloProto as XLA dumps it (hlo.pb),
    StableHLO text (mlir) or bytecode (mlirbc).

    OUT's name says which (.hlo, .txt, .pb, .hlo.pb, .mlir, .mlirbc; .gz may follow each), or --to. FILE may have any
    form that the other verbs read. All but HLO text is written by jaxlib (the extra `jax`). StableHLO has no place
    for layouts, aliases and fusions: they are lost.
    """
    target = _target(output, to)
    files.check_writable(output)
    files.check_writable(recorded)
    data, shown = files.read_bytes(file)
    from hlo_opt.forms.kinds import Form
    from hlo_opt.jax.conversion import converted, hlo_text, unpacked

    data, form = unpacked(data, shown)
    if recorded is not None:
        _write_recorded(recorded, data, form, shown)
    if target == "hlo" or form is Form.TEXT:
        module = _module(hlo_text(data, form, shown), shown)
    if target == "hlo":
        written = str(module).encode()
    else:
        if form is Form.TEXT:
            _check_text(module, target, shown)
        written = converted(data, form, target.removeprefix("hlo."), shown)
    if target == "hlo.pb":
        from hlo_opt.forms.kinds import MODULE_FIELD
        from hlo_opt.forms.wire import of_bytes

        written = of_bytes(MODULE_FIELD, written)
    if target in ("hlo", "mlir") and output == files.STANDARD:
        files.write_module(output, written.decode())
        return
    with files.whole_file(output) as stream:
        stream.write(gzip.compress(written, mtime=0) if output.endswith(".gz") else written)
    files.say_written(output)


def _target(output: str, to: str | None) -> str:
    """The form to write. Raises UsageError where no option and no ending says it, or the form is unknown."""
    if to is not None:
        if to not in TO:
            raise UsageError(
                f"no form is called {to!r}", code=NO_FORM, hint=did_you_mean(to, TO) or f"--to takes {', '.join(TO)}"
            )
        return to
    ending = re.search(r"\.(hlo\.pb|pb|hlo|txt|mlirbc|mlir)(?:\.gz)?$", output)
    if ending is None:
        raise UsageError(
            "its name does not say which form is wanted",
            code=NO_FORM,
            filename=output,
            hint=f"--to takes {', '.join(TO)}",
        )
    return "hlo" if ending[1] == "txt" else ending[1]


def _module(text: str, shown: str) -> Module:
    """Raises ParseError and VerifyError as the other verbs do; unknown operations are kept as they are."""
    from hlo_opt.text import parse, verify

    module = parse(text, filename=shown)
    verify(module, allow_unknown=True)
    return module


def _check_text(module: Module, target: str, shown: str) -> None:
    """Raises UsageError for a text that leaves out constants: XLA reads zeros there. Says what a form has no place
    for."""
    from hlo_opt.analysis.graph.digest import header
    from hlo_opt.evaluate.elided import elided_constants

    missing = elided_constants(module)
    if missing:
        raise UsageError(
            f"the text leaves out the value of the constant `{missing[0].name}`, and XLA would read zeros",
            code=ELIDED,
            filename=shown,
            hint="dump it with XLA_FLAGS=--xla_dump_large_constants, or as a protobuf (--xla_dump_hlo_as_proto)",
        )
    lost = [name for name in CONFIGURED if header(module, name)]
    if lost:
        failure.say(f"{shown}: {target} has no place for {' and '.join(lost)}, and leaves that out")


def _write_recorded(output: str, data: bytes, form: Form, shown: str) -> None:
    from hlo_opt.cli.arrays import save_outputs

    rows = files.recorded(data, form, shown)
    if not rows:
        raise UsageError(f"is {form.value}, and holds no inputs", code="HLO401", filename=shown)
    several = len(rows) > 1
    save_outputs(output, {f"in{n}" + f".d{d}" * several: a for d, row in enumerate(rows) for n, a in enumerate(row)})
