"""Builds the kernel of a module's whole entry and runs it on the host, to compare with the NumPy meaning."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.codegen import Kernel, emit_kernel
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.ir import Computation, Shape, edit
from hlo_opt.ops.stored_bits import as_stored
from hlo_opt.plans import Plan, Region, plan
from hlo_opt.plans.region import array_roots, inlined
from hlo_opt.plans.sketch import candidate_of
from hlo_opt.runtime.host.library import HostLibrary, KernelForm, has_compiler
from hlo_opt.runtime.numpy import Reference, empty_memory, from_memory, to_memory
from hlo_opt.text import parse
from tests.small_modules import H100

Array = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HLO_OPT_CACHE", str(tmp_path_factory.mktemp("cache", numbered=True)))
        yield


def region_of_text(text: str) -> Region:
    module = parse(text)
    computation, declared = as_stored(inlined(module, module.entry))
    around = Computation("around")
    if computation.root.operands == list(computation.parameters):  # an operation by itself
        return Region(
            computation.root, computation, tuple(computation.parameters), tuple(array_roots(computation.root)), declared
        )
    given = [edit.create_parameter(around, f"g{n}", p.shape, n) for n, p in enumerate(computation.parameters)]
    kernel = candidate_of(computation, given)
    return Region(kernel, computation, tuple(computation.parameters), tuple(array_roots(computation.root)), declared)


def whole_numbers(array: Array) -> Array:
    """The array rounded, so that sums come out the same in any order."""
    if array.dtype.kind in "biu":
        return array
    wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    return np.asarray(np.rint(wide * 2)).astype(array.dtype)


def empty(shape: Shape) -> Array:
    """A buffer that holds nothing of use."""
    made = empty_memory(shape)
    made.view(np.uint8)[:] = 0xCD
    return made


@functools.lru_cache(maxsize=64)
def _meant(text: str, seed: int, whole: bool) -> tuple[list[Array], list[Array]]:
    """Drawn inputs, whole numbers where asked, and what the op table says of them. Both forms of kernels are held to
    it, one after the other."""
    module = parse(text)
    given = [whole_numbers(a) if whole else a for a in module_inputs(module, seed=seed)]
    wanted = Reference(module).run(given)
    for array in (*given, *wanted):
        array.setflags(write=False)
    return given, wanted


@dataclass
class Tool:
    """What tests of kernels need. Kernels run in one of their forms."""

    form: KernelForm = "plain"
    region: Callable[[str], Region] = region_of_text
    target: DeviceTarget = H100

    def plan(self, text: str) -> Plan:
        found = plan(region_of_text(text), self.target)
        assert isinstance(found, Plan), str(found)
        return found

    def kernel(self, text: str) -> Kernel:
        return emit_kernel(self.plan(text))

    def run(self, text: str, inputs: Sequence[Array]) -> list[Array]:
        """The outputs of the entry's one kernel, in logical order."""
        if not has_compiler():
            pytest.skip("no C++ compiler")
        kernel = self.kernel(text)
        given = [to_memory(np.asarray(a), s) for a, s in zip(inputs, kernel.inputs, strict=True)]
        outputs = [empty(s) for s in kernel.outputs]
        HostLibrary([kernel], form=self.form).launch(kernel, given, outputs)
        return [from_memory(o, s) for o, s in zip(outputs, kernel.outputs, strict=True)]

    def all_agree(self, texts: Sequence[str], *, relative: float = 0.0, seed: int = 3) -> None:
        """The kernels of several modules give what the op table says, on whole numbers. They are built together, which
        is quicker than one by one."""
        if not has_compiler():
            pytest.skip("no C++ compiler")
        kernels = [self.kernel(text) for text in texts]
        library = HostLibrary(list({kernel.symbol: kernel for kernel in kernels}.values()), form=self.form)
        for text, kernel in zip(texts, kernels, strict=True):
            given, wanted = _meant(text, seed, True)
            outputs = [empty(s) for s in kernel.outputs]
            library.launch(kernel, [to_memory(a, s) for a, s in zip(given, kernel.inputs, strict=True)], outputs)
            # behind the results may lie memory of the launch
            for got, shape, want in zip(outputs, kernel.outputs[: len(wanted)], wanted, strict=False):
                if shape.type.per_byte > 1:  # with zeros behind the last element
                    np.testing.assert_array_equal(got, to_memory(want, shape), err_msg=text)
                if relative and want.dtype.kind not in "biu":
                    np.testing.assert_allclose(from_memory(got, shape), want, relative, relative, err_msg=text)
                else:
                    np.testing.assert_array_equal(from_memory(got, shape), want, err_msg=text)

    def agrees(
        self, text: str, *, relative: float = 0.0, inputs: Sequence[Array] | None = None, whole: bool = False
    ) -> None:
        """The kernel gives what the op table says. `whole` rounds the random inputs, so that sums come out the same in
        any order."""
        if inputs is None:
            given, wanted = _meant(text, 3, whole)
        else:
            given = [whole_numbers(a) for a in inputs] if whole else list(inputs)
            wanted = Reference(parse(text)).run(given)
        for got, want in zip(self.run(text, given), wanted, strict=True):
            assert got.dtype == want.dtype
            if relative and want.dtype.kind not in "biu":
                np.testing.assert_allclose(
                    got.astype(np.float64), want.astype(np.float64), rtol=relative, atol=relative
                )
            else:
                np.testing.assert_array_equal(got, want)


@pytest.fixture(params=["plain", "lanes"])
def tool(request: pytest.FixtureRequest) -> Tool:
    """Made for each test, so that both forms of one come after each other and share what is kept of its inputs."""
    return Tool(request.param)


@pytest.fixture(scope="session")
def planner() -> Tool:
    """The same for tests that run no kernel in a form, so that they run once."""
    return Tool()
