"""Kernels that crash end a check with an error, not the process."""

import ctypes
import platform
import re
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest

import hlo_opt
from hlo_opt.diag import BackendError
from hlo_opt.runtime.check.compare import check
from hlo_opt.runtime.host import library
from hlo_opt.runtime.host.compiler import has_compiler, load
from hlo_opt.runtime.host.crashes import crashes_told
from hlo_opt.runtime.schedule import lowering

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

NULL = "*(volatile int*)8 = 1;"
FULL = (  # in steps that are smaller than the page behind a thread's stack: none goes over it, to memory of others
    "struct Deep { static int f(volatile char* p) { volatile char a[512]; a[0] = *p; return f(a) + a[0]; } }; "
    "volatile char c = 1; c = Deep::f(&c);"
)
FAULTS = {
    "null": (NULL, "SIGSEGV"),
    "no address": ("*(volatile long*)0x7fff00000000deadL = 1;", "SIGSEGV"),
    "division": ("volatile int zero = 0, seven = 7; seven = seven / zero;", "SIGFPE"),
    "instruction": ("__builtin_trap();", "SIGILL"),
    "full stack": (FULL, "SIGSEGV"),
}


def of(count):
    return hlo_opt.parse(
        f"HloModule m\nENTRY e {{\n  p = f32[{count}] parameter(0)\n  ROOT r = f32[{count}] exponential(p)\n}}\n"
    )


def planted_in_lanes(monkeypatch, fault):
    """A fault at the start of each launcher of the lanes form."""
    unit = library.lanes_unit
    head = re.compile(r'(extern "C"[^{;]*int launch_\w+\([^)]*\) \{)')

    def planted(kernels):
        text, count = head.subn(lambda found: found[1] + fault, unit(kernels))
        assert count == len(kernels)
        return text

    monkeypatch.setattr(library, "lanes_unit", planted)


def planted_in_plain(monkeypatch, old, new):
    emitted = lowering.emit_kernel

    def planted(plan, in_place=()):
        made = emitted(plan, in_place)
        assert old in made.source
        return replace(made, source=made.source.replace(old, new))

    monkeypatch.setattr(lowering, "emit_kernel", planted)


def error_of(module, **how):
    with pytest.raises(BackendError) as caught:
        check(module, module, backend="host", **how)
    assert caught.value.code == "HLO532"
    return caught.value


@pytest.mark.parametrize("name", FAULTS)
def test_a_crash_of_the_lanes_form_is_told(name, monkeypatch):
    fault, number = FAULTS[name]
    planted_in_lanes(monkeypatch, fault)
    error = error_of(of(9))
    assert re.match(r"the kernel \w+, which computes r, crashed in the lanes form: .*\((\w+)\)$", error.message)
    assert f"({number})" in error.message or (name == "instruction" and "(SIGTRAP)" in error.message)
    assert error.line == 4 and "reduce" in error.hint


@pytest.mark.parametrize("fault", [NULL, FULL], ids=["null", "full stack"])
def test_a_crash_of_another_thread_is_told(fault, monkeypatch):
    """A large kernel is spread over the processors; only blocks behind the first fault."""
    monkeypatch.setenv("HLO_OPT_THREADS", "3")
    planted_in_lanes(monkeypatch, f"if (first) {{ {fault} }}")
    assert "(SIGSEGV)" in error_of(of(3_000_000)).message
    monkeypatch.undo()
    assert check(of(9), of(9), backend="host").ok


def test_a_crash_of_the_emitted_text_is_told_and_leaves_no_lock(monkeypatch):
    """Threads that meet run as fibres, on stacks of their own. A launch holds a lock, which the next would wait for."""
    module = hlo_opt.parse(
        "HloModule m\nadd { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n"
        "ENTRY e { p = f32[8,700] parameter(0)\n z = f32[] constant(0)\n"
        " ROOT r = f32[8] reduce(p, z), dimensions={1}, to_apply=add }\n"
    )
    planted_in_plain(monkeypatch, "__shfl_", "*(volatile int*)8 + __shfl_")
    for _ in range(2):
        assert "crashed in the plain form: Segmentation fault" in error_of(module).message
    monkeypatch.undo()
    assert check(module, module, backend="host").ok


def test_a_crash_of_a_routine_of_the_host_is_told(monkeypatch):
    module = hlo_opt.parse(
        "HloModule m\nENTRY e { a = f32[64,64] parameter(0)\n b = f32[64,64] parameter(1)\n"
        " ROOT d = f32[64,64] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0} }\n"
    )
    text = 'extern "C" __attribute__((visibility("default"))) bool f(void**, long long*, void*, int) { ' + NULL + " }"
    address = ctypes.cast(load([text]).f, ctypes.c_void_p).value
    monkeypatch.setattr("hlo_opt.runtime.host.program.routine", lambda name: address)
    assert "the routine product_f32 of the host crashed: Segmentation fault" in error_of(module).message


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the register of x86-64")
def test_how_floats_round_is_as_before(monkeypatch):
    """A signal's handler begins with the processor's own way; ours must leave the thread's."""
    library_of = load(
        [
            'extern "C" __attribute__((visibility("default"))) unsigned get() { return __builtin_ia32_stmxcsr(); }\n'
            'extern "C" __attribute__((visibility("default"))) void set(unsigned m) { __builtin_ia32_ldmxcsr(m); }'
        ]
    )
    before = library_of.get()
    planted_in_lanes(monkeypatch, NULL)
    executable = hlo_opt.compile(of(9), "host")
    library_of.set(before | 0x8040)  # denormals are zero
    try:
        with crashes_told(), pytest.raises(BackendError):
            executable(np.zeros(9, np.float32))
        assert library_of.get() & 0x8040 == 0x8040
    finally:
        library_of.set(before)


def test_handlers_are_those_from_before(tmp_path):
    """Also with nested checks; and what no kernel does is none of ours: Python tells of it as it would."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import ctypes, faulthandler, os, signal, sys
        from hlo_opt.runtime.host.crashes import crashes_told

        faulthandler.enable()

        def caught():
            line, = (l for l in open("/proc/self/status") if l.startswith("SigCgt"))
            return int(line.split()[1], 16)

        before = caught()
        with crashes_told():
            with crashes_told():
                assert caught() & 1 << signal.SIGTRAP - 1
            assert caught() & 1 << signal.SIGTRAP - 1
        assert caught() == before and not before & 1 << signal.SIGTRAP - 1
        with crashes_told():
            if sys.argv[1] == "fault":
                ctypes.string_at(8)
            elif sys.argv[1] == "sent":
                os.kill(os.getpid(), signal.SIGSEGV)
            else:
                faulthandler.disable()
                faulthandler.enable()
        if sys.argv[1] == "after":
            ctypes.string_at(8)
        """)
    )
    for way in ("fault", "sent", "after"):
        done = subprocess.run([sys.executable, program, way], capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGSEGV, done.stderr
        assert "Fatal Python error: Segmentation fault" in done.stderr


def test_nothing_is_guarded_outside_of_a_check(tmp_path):
    """The signals of who runs a program are his own."""
    program = tmp_path / "program.py"
    program.write_text(
        "import hlo_opt, numpy\n"
        "from hlo_opt.runtime.host import library\n"
        "unit = library.lanes_unit\n"
        "def planted(kernels):\n"
        "    before, after = unit(kernels).rsplit('long long last) {', 1)\n"
        f"    return before + 'long long last) {{ {NULL}' + after\n"
        "library.lanes_unit = planted\n"
        "m = hlo_opt.parse('HloModule m\\nENTRY e { p = f32[9] parameter(0)\\n ROOT r = f32[9] exponential(p) }')\n"
        "hlo_opt.compile(m, 'host')(numpy.zeros(9, numpy.float32))\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGSEGV, done.stderr
