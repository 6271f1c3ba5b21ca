"""The fixed parts of an emitted `driver.py`, as format strings: literal braces are doubled."""

from __future__ import annotations

from hlo_opt.library.functions import FUNCTIONS

PRELUDE = '''\
"""Runs a compiled HLO module on a GPU. Needs CuPy and NumPy; the kernels are in the files beside this one.

    from driver import run
    outputs = run(*arrays)

`run` takes one array per entry parameter (tuples flattened in order; `INPUTS` lists them) and returns the module's
result as a list of NumPy arrays (`OUTPUTS`); `run_on_device` takes and returns CuPy arrays. Types that NumPy lacks,
such as bf16, are raw bits: `uint16` in, `uint16` out. Written by hlo-opt; edit as you like.
"""

# HLO module: {module}
{imports}
import hashlib
import os
import pathlib

import cupy
import numpy

FOLDER = pathlib.Path(__file__).resolve().parent
OPTIONS = {options}  # as in manifest.json; without -fmad=false, a product and a sum would round once instead of twice


class Kernel:
    """The function `symbol` of a CUDA file; compiled at its first launch.

    `grid` is blocks, `block` threads per block, `kept` bytes of memory through which blocks communicate, and
    `cooperative` whether all blocks must run at the same time.
    """

    def __init__(self, file, symbol, grid, block, kept=0, cooperative=False):
        self.file, self.symbol, self.grid, self.block, self.kept = file, symbol, grid, block, kept
        self.how = {{"enable_cooperative_groups": True}} if cooperative else {{}}
        self.function, self.memory = None, {{}}

    def __call__(self, *buffers):
        """Launch it: one flat buffer per input, then one per output."""
        if self.grid == 0:
            return
        if self.function is None:
            self.function = loaded(self.file, self.symbol)
        if self.kept:
            stream = cupy.cuda.get_current_stream().ptr
            if stream not in self.memory:
                self.memory[stream] = cupy.zeros(self.kept, "uint8")
            buffers += (self.memory[stream],)
        self.function((self.grid,), (self.block,), buffers, **self.how)


def loaded(file, symbol):
    """A function of a CUDA file, with its machine code in CuPy's cache.

    `cupy.RawModule` would flush denormal numbers to zero: it adds -ftz=true.
    """
    source = (FOLDER / file).read_text(encoding="utf-8")
    key = repr((source, OPTIONS, cupy.cuda.Device().compute_capability, cupy.cuda.nvrtc.getVersion()))
    folder = pathlib.Path(os.environ.get("CUPY_CACHE_DIR") or "~/.cupy/kernel_cache").expanduser()
    path = folder / f"hlo_opt_{{hashlib.sha256(key.encode()).hexdigest()}}.cubin"
    try:
        code = path.read_bytes()
    except OSError:
        code, _ = cupy.cuda.compiler.compile_using_nvrtc(source, OPTIONS)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(f".{{os.getpid()}}.partial")
            partial.write_bytes(code)
            partial.replace(path)
        except OSError:
            pass  # compiled again next time
    module = cupy.cuda.function.Module()
    module.load(code)
    return module.get_function(symbol)


def constant(name):
    """The buffer of a constant, uploaded when it is first used."""
    if name not in UPLOADED:
        dtype, count, bits = CONSTANTS[name]
        if bits is None:
            with numpy.load(FOLDER / "constants.npz") as archive:
                values = archive[name]
        else:
            values = numpy.frombuffer(bytes.fromhex(bits), dtype) if bits else numpy.empty(0, dtype)
            values = numpy.full(count, values[0]) if values.size == 1 else values
        UPLOADED[name] = cupy.asarray(values)
    return UPLOADED[name]


UPLOADED = {{}}


def on_gpu(array):
    """A CuPy array for an array on a GPU, without a copy (PyTorch, JAX, any DLPack producer); others unchanged."""
    where = None if isinstance(array, cupy.ndarray) else getattr(array, "__dlpack_device__", None)
    return cupy.from_dlpack(array) if where is not None and where()[0] == 2 else array


def upload(array, dimensions, minor_to_major, dtype, hlo_type):
    """A flat buffer with the array's elements in the order of the parameter's layout; its own memory if possible."""
    library = cupy if isinstance(array, cupy.ndarray) else numpy
    array = array if library is cupy else numpy.asarray(array)
    if array.dtype != dtype and array.dtype.kind not in "biufc" and array.dtype.itemsize == numpy.dtype(dtype).itemsize:
        array = array.view(dtype)
    if array.dtype != dtype or array.shape != dimensions:
        expected = f"{{hlo_type}} {{dimensions}} stored as {{dtype}}"
        raise TypeError(f"expected {{expected}}, got {{array.dtype}} {{array.shape}}")
    flat_array = library.ascontiguousarray(array.transpose(tuple(reversed(minor_to_major)))).reshape(-1)
    buffer = cupy.asarray({upload})
    return buffer if buffer.data.ptr % 16 == 0 else buffer.copy()


def shaped(buffer, dimensions, minor_to_major, dtype, hlo_type):
    """The array in a flat buffer."""
    order = tuple(reversed(minor_to_major))
    dense = {shaped}.view(dtype).reshape([dimensions[d] for d in order])
    return dense.transpose([order.index(d) for d in range(len(order))])


def shares(buffer, others):
    """Whether a buffer shares memory with one of the others."""
    return any(other is not None and cupy.may_share_memory(buffer, other) for other in others)
'''

EPILOGUE = '''\
def run_on_device(*arrays{arguments}, donate=False):
    """The module's outputs, a list of CuPy arrays, for its inputs. Arrays of CuPy or any DLPack producer are used in
    place, others are uploaded. `donate`: inputs that the module may overwrite (`DONATED`) are overwritten.{meaning}"""
{begins}    wanted = [spec for spec in INPUTS if spec is not None]
    if len(arrays) != len(wanted):
        raise TypeError(f"expected {{len(wanted)}} arrays, got {{len(arrays)}}")
    arrays = [on_gpu(array) for array in arrays]
    remaining = iter(arrays)
    buffers = [None if spec is None else upload(next(remaining), *spec) for spec in INPUTS]
    kept = [] if donate else [array for array in arrays if isinstance(array, cupy.ndarray)]
    for number in DONATED:
        buffer, others = buffers[number], buffers[:number] + buffers[number + 1 :]
        if buffer.nbytes % 4 or shares(buffer, others + kept):
            buffers[number] = buffer.copy()
    results = {entry}(*buffers)
    taken = [*(buffer for number, buffer in enumerate(buffers) if number not in DONATED), *UPLOADED.values()]
    outputs = []
    for buffer, spec in zip(results, OUTPUTS):
        if spec is not None:
            taken.append(buffer.copy() if shares(buffer, taken) else buffer)
            outputs.append(shaped(taken[-1], *spec))
    return outputs


def run(*arrays{arguments}):
    """The module's outputs, a list of NumPy arrays, for its inputs.{meaning}"""
    return [numpy.array(cupy.asnumpy(array), order="C") for array in run_on_device(*arrays{passed})]


if __name__ == "__main__":
    import sys

    if len(sys.argv) > 1:
        with numpy.load(sys.argv[1]) as archive:
            given_arrays = [archive[f"in{{number}}"] for number in range(sum(spec is not None for spec in INPUTS))]
{named}    else:
        given_arrays = [numpy.zeros(spec[0], spec[2]) for spec in INPUTS if spec is not None]
{zeros}    outputs = run(*given_arrays{passes})
    for number, array in enumerate(outputs):
        print(f"out{{number}}  {{array.dtype}}{{list(array.shape)}}")
    if len(sys.argv) > 2:
        numpy.savez(sys.argv[2], **{{f"out{{number}}": array for number, array in enumerate(outputs)}})
'''

MEANING = """ The module runs on several devices: start a process for each, and give
    each the result of `cupyx.distributed.init_process_group(devices, rank)` there, and its own arrays."""
CONNECTED = "    COMMUNICATOR[:] = [] if communicator is None else [communicator]\n"

ABOUT_ELIDED = """ `elided` has the arrays of the
    constants that the HLO text leaves out, by their names: see `ELIDED`."""
TAKES_ELIDED = """\
    for name, (key, *spec) in ELIDED.items():
        if elided is None or key not in elided:
            raise TypeError(f"the HLO text elides the value of constant {key}: run(*arrays, elided={{{key!r}: ...}})")
        UPLOADED[name] = upload(elided[key], *spec)
"""
READS_ELIDED = """\
            named = {spec[0]: archive[spec[0]] for spec in ELIDED.values()}
"""
ZEROS_FOR_ELIDED = """\
        named = {spec[0]: numpy.zeros(spec[1], spec[3]) for spec in ELIDED.values()}
"""

PLAIN = {"upload": "flat_array", "shaped": "buffer"}
PACKED = {
    "upload": "packed(library, flat_array, PACKED[hlo_type]) if hlo_type in PACKED else flat_array",
    "shaped": (
        "(unpacked(cupy, buffer, PACKED[hlo_type], int(numpy.prod(dimensions, dtype=int))) "
        "if hlo_type in PACKED else buffer)"
    ),
}
"""What `upload` and `shaped` do without and with types whose elements share bytes."""

_OWN = """hashlib os pathlib annotations cupy numpy FOLDER OPTIONS Kernel loaded constant UPLOADED on_gpu upload shaped
shares run run_on_device state KERNELS CONSTANTS ELIDED INPUTS OUTPUTS DONATED COMMUNICATOR PACKED"""
RESERVED = frozenset({*_OWN.split(), *FUNCTIONS})
"""Names that the driver uses itself."""
