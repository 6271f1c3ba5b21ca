"""The verb `build`: a module's kernels for other programs."""

from __future__ import annotations

import click

from hlo_opt.cli import failure
from hlo_opt.cli.files import read_module
from hlo_opt.cli.options import OptionValue, elided_option, file_argument, fuse_options, precise_option


@click.command("build")
@file_argument
@click.option(
    "-o", "folder", metavar="DIR", required=True, help="The folder: new, empty, or a bundle, which is replaced."
)
@click.option("--name", metavar="NAME", help="What the function is called in C and Python.  [default: as the module]")
@click.option(
    "--march",
    metavar="CPU",
    help="The processor, as the C++ compiler calls it; native is this one.  "
    "[default: x86-64-v3, on other processors what all of them can run]",
)
@fuse_options
@elided_option
@precise_option
def build_command(
    file: str,
    folder: str,
    name: str | None,
    march: str | None,
    elided: str | None,
    precise: bool,
    **options: OptionValue,
) -> None:
    """Fuse FILE and build what other programs can call: DIR gets a shared library with a C header, a Python module for
    JAX, the CUDA texts, and a manifest.

    libNAME.so has one function, `int NAME(const void* const* inputs, void* const* outputs)`, which runs the whole
    module on the CPU; NAME.h says what its arrays are. It runs on processors of Intel and AMD since about 2015
    (x86-64-v3); --march native builds for this machine's processor, and may not run on another.

    NAME.py registers the same function with JAX (typed FFI); `hlo_opt.jax.call(DIR, *arrays)` calls it, also in jitted
    functions. It needs jaxlib when it is built.

    cuda/ is what `hlo-opt fuse --emit` writes, with machine code beside each kernel where NVRTC is installed.
    """
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.jax.bundle import build_bundle, check_bundle_folder

    check_bundle_folder(folder)
    module = read_module(file)
    fused = Fusing.of(options).run(module).outcome.module
    built = build_bundle(fused, folder, name=name, precise=precise, elided=elided, march=march)
    failure.say(f"{folder}: {', '.join(built.files)}")
    for part, why in built.left_out.items():
        failure.say(f"  left out: {part}: {why}")
