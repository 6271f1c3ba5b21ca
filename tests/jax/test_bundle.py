"""Bundles: a C program that uses the header, JAX that calls the module, and what is refused."""

from __future__ import annotations

import ctypes
import json
import platform
import shutil
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_opt.jax
from hlo_opt.cli.group import run
from hlo_opt.diag import UsageError
from hlo_opt.evaluate import evaluate
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.jax.bundle import build_bundle
from hlo_opt.jax.bundle_texts import identifier
from hlo_opt.text import parse

TEXT = """HloModule jit_f

body {
  s = (s32[], f32[37]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[37]{0} get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[37]{0} sine(x)
  ROOT t = (s32[], f32[37]{0}) tuple(j, y)
}

condition {
  s = (s32[], f32[37]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}

ENTRY e {
  p = f32[37]{0} parameter(0)
  q = f32[3,37]{0,1} parameter(1)
  c = f32[37]{0} constant({CONSTANT})
  z = s32[] constant(0)
  w = (s32[], f32[37]{0}) while((s32[], f32[37]{0}) tuple(z, p)), condition=condition, body=body
  v = f32[37]{0} get-tuple-element(w), index=1
  u = f32[37]{0} add(v, c)
  b = f32[3,37]{0,1} broadcast(u), dimensions={1}
  m = f32[3,37]{0,1} multiply(b, q)
  k = pred[37]{0} compare(v, c), direction=GT
  ROOT r = (f32[3,37]{0,1}, pred[37]{0}) tuple(m, k)
}
"""


def text() -> str:
    given = TEXT.replace("CONSTANT", ", ".join(str(n / 8) for n in range(37)))
    return given.replace("while((s32[], f32[37]{0}) tuple(z, p))", "while(a)").replace(
        "  w = ", "  a = (s32[], f32[37]{0}) tuple(z, p)\n  w = "
    )


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    (folder / "m.hlo").write_text(text())
    assert run(["build", str(folder / "m.hlo"), "-o", str(folder / "bundle")]) == 0
    return folder / "bundle"


PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "jit_f.h"

static void* read_file(const char* name, size_t bytes) {
  void* data = malloc(bytes + 1);
  FILE* file = fopen(name, "rb");
  if (!file || fread((char*)data + OFFSET, 1, bytes, file) != bytes) exit(9);
  fclose(file);
  return (char*)data + OFFSET;
}

int main(void) {
  if (jit_f_input_count != 2 || jit_f_output_count != 2) return 8;
  const void* inputs[jit_f_input_count] = {read_file("in0", jit_f_input_0_bytes), read_file("in1", jit_f_input_1_bytes)};
  void* outputs[jit_f_output_count] = {(char*)malloc(jit_f_output_0_bytes + 1) + OFFSET, (char*)malloc(jit_f_output_1_bytes + 1) + OFFSET};
  for (int turn = 0; turn < 3; ++turn)
    if (jit_f(inputs, outputs)) return 7;
  FILE* file = fopen("out0", "wb");
  fwrite(outputs[0], 1, jit_f_output_0_bytes, file);
  fclose(file);
  file = fopen("out1", "wb");
  fwrite(outputs[1], 1, jit_f_output_1_bytes, file);
  return fclose(file);
}
"""


@pytest.mark.parametrize("offset", [0, 1])
def test_a_c_program_uses_the_header(bundle: Path, offset: int, tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    module = parse(text())
    given = module_inputs(module, 3)
    (tmp_path / "in0").write_bytes(np.asarray(given[0]).tobytes())
    (tmp_path / "in1").write_bytes(np.asarray(given[1]).T.tobytes())
    (tmp_path / "main.c").write_text(PROGRAM)
    command = [
        compiler,
        "-Wall",
        "-Wextra",
        "-Werror",
        "-std=c99",
        f"-DOFFSET={offset}",
        f"-I{bundle}",
        "main.c",
        f"-L{bundle}",
        "-ljit_f",
        f"-Wl,-rpath,{bundle}",
        "-o",
        "main",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run([str(tmp_path / "main")], cwd=tmp_path, check=True)
    want = evaluate(module, given)
    got = np.frombuffer((tmp_path / "out0").read_bytes(), np.float32).reshape(37, 3).T
    np.testing.assert_allclose(got, want[0], rtol=1e-5, atol=1e-6)
    assert np.frombuffer((tmp_path / "out1").read_bytes(), bool).tolist() == want[1].tolist()


def test_only_its_function_and_its_handler_are_seen(bundle: Path) -> None:
    tool = shutil.which("nm")
    if tool is None:
        pytest.skip("there is no nm")
    shown = subprocess.run(
        [tool, "-D", "--defined-only", str(bundle / "libjit_f.so")], capture_output=True, text=True, check=True
    )
    assert {line.split()[-1] for line in shown.stdout.splitlines()} == {"jit_f", "jit_f_handler"}


def test_jax_calls_it_in_jitted_functions(bundle: Path) -> None:
    module = parse(text())
    p, q = map(jnp.asarray, module_inputs(module, 5))
    want = evaluate(module, [np.asarray(2 * p), np.asarray(q)])
    first, second = jax.jit(lambda p, q: hlo_opt.jax.call(bundle, 2 * p, q))(p, q)
    np.testing.assert_allclose(first, want[0], rtol=1e-5, atol=1e-6)
    assert second.dtype == jnp.bool_ and second.tolist() == want[1].tolist()
    plain = hlo_opt.jax.call(str(bundle), 2 * p, q)
    assert isinstance(plain, tuple) and plain[0].tolist() == first.tolist()
    several = jax.vmap(lambda p: hlo_opt.jax.call(bundle, p, q)[0])(jnp.stack([p, 2 * p]))
    assert several[1].tolist() == first.tolist()
    compiled = jax.jit(lambda p, q: hlo_opt.jax.call(bundle, p, q)).lower(p, q).compile().as_text()
    assert 'custom_call_target="hlo_opt.jit_f.' in compiled


def test_other_arrays_are_a_type_error(bundle: Path) -> None:
    p, q = jnp.zeros(37), jnp.zeros((3, 37))
    with pytest.raises(TypeError, match="takes 2 arrays, not 1"):
        hlo_opt.jax.call(bundle, p)
    with pytest.raises(TypeError, match=r"input 1 of jit_f is float32\[3, 37\], not float32\[37\]"):
        hlo_opt.jax.call(bundle, p, p)
    with pytest.raises(TypeError, match="input 0"):
        hlo_opt.jax.call(bundle, p.astype(jnp.int32), q)


def test_the_manifest_says_what_there_is(bundle: Path) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert sorted(manifest["files"]) == sorted(p.name for p in bundle.iterdir() if p.name != "__pycache__")
    assert manifest["bundle"] == "jit_f" and manifest["left_out"].keys() <= {"cubin"}
    assert manifest["inputs"][1] == {"type": "f32", "dimensions": [3, 37], "minor_to_major": [0, 1], "bytes": 444}
    assert [o["type"] for o in manifest["outputs"]] == ["f32", "pred"] and manifest["kernels"]
    kernels = json.loads((bundle / "cuda" / "manifest.json").read_text())["kernels"]
    for kernel in kernels:
        text = bundle / "cuda" / kernel["file"]
        assert text.exists() and (
            "cubin" in manifest["left_out"] or text.with_suffix(".cubin").read_bytes().startswith(b"\x7fELF")
        )


def flags(folder: Path) -> list[str]:
    found: list[str] = json.loads((folder / "manifest.json").read_text())["processor"]
    return [flag for flag in found if flag.startswith("-march")]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other architectures have other names")
def test_a_bundle_is_for_other_machines_unless_it_is_to_be_for_this_one(bundle: Path, tmp_path: Path) -> None:
    """Machine code of the portable one has no vectors of 64 bytes, and no one leaves MMX registers behind, with which
    `numpy.linalg.qr` would be NaN afterwards."""
    assert flags(bundle) == ["-march=x86-64-v3"]
    (tmp_path / "m.hlo").write_text(text())
    given = module_inputs(parse(text()), 3)
    for name in ("native", "x86-64-v2"):
        folder = tmp_path / name
        assert run(["build", str(tmp_path / "m.hlo"), "-o", str(folder), "--march", name]) == 0
        assert flags(folder) == [f"-march={name}"]
        for ours, portable in zip(hlo_opt.jax.call(folder, *given), hlo_opt.jax.call(bundle, *given), strict=True):
            np.testing.assert_allclose(np.asarray(ours), np.asarray(portable), rtol=1e-5, atol=1e-6)
    objdump = shutil.which("objdump")
    if objdump is not None:
        for folder in (bundle, tmp_path / "x86-64-v2"):
            command = [objdump, "-d", str(folder / "libjit_f.so")]
            shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            assert "%mm" not in shown and ("ymm" in shown) == (folder is bundle) and "zmm" not in shown


def test_a_processor_that_the_compiler_does_not_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.hlo").write_text(text())
    assert run(["build", str(tmp_path / "m.hlo"), "-o", str(tmp_path / "b"), "--march", "z80 -O0"]) == 2
    assert "HLO511" in capsys.readouterr().err and not (tmp_path / "b").exists()


def test_one_array_is_no_tuple_and_a_bundle_is_replaced(tmp_path: Path) -> None:
    for constant in (1, 2):
        module = parse(
            f"HloModule m.1\n\nENTRY e "
            f"{{\n  p = s32[] parameter(0)\n  c = s32[] constant({constant})\n  ROOT s = s32[] add(p, c)\n}}\n"
        )
        made = build_bundle(module, tmp_path / "b", name=f"plus{constant}")
        assert (tmp_path / "b" / f"plus{constant}.h").exists() and made.name == f"plus{constant}"
    assert sorted(made.files) == sorted(p.name for p in (tmp_path / "b").iterdir())
    found = hlo_opt.jax.call(tmp_path / "b", jnp.int32(40))
    assert isinstance(found, jax.Array) and int(found) == 42


def test_an_input_that_is_given_away_holds_the_output_where_the_caller_says_so(tmp_path: Path) -> None:
    module = parse(
        "HloModule m, input_output_alias={ {}: (1, {}, may-alias) }\n\nENTRY e {\n  p = f32[64] parameter(0)\n"
        "  q = f32[64] parameter(1)\n  ROOT s = f32[64] subtract(p, q)\n}\n"
    )
    build_bundle(module, tmp_path / "b")
    assert "outputs[0] may be inputs[1]: it is written in place" in (tmp_path / "b" / "m.h").read_text()
    ones, twos = jnp.ones(64), jnp.full(64, 2.0)
    assert hlo_opt.jax.call(tmp_path / "b", ones, twos).tolist() == [-1.0] * 64 and twos.tolist() == [2.0] * 64
    given = jnp.full(64, 2.0)
    pointer = given.unsafe_buffer_pointer()
    made = jax.jit(lambda p, q: hlo_opt.jax.call(tmp_path / "b", p, q), donate_argnums=1)(ones, given)
    assert made.tolist() == [-1.0] * 64 and made.unsafe_buffer_pointer() == pointer and given.is_deleted()
    function = ctypes.CDLL(str(tmp_path / "b" / "libm.so")).m
    for shift in (0, 1):  # elements that do not begin on a multiple of 16 bytes are copied, there and back
        p, q, out = (np.full(65, value, np.float32)[shift : 64 + shift] for value in (1.0, 2.0, 0.0))
        for result in (out, q):
            inputs = (ctypes.c_void_p * 2)(p.ctypes.data, q.ctypes.data)
            assert function(inputs, (ctypes.c_void_p * 1)(result.ctypes.data)) == 0
            np.testing.assert_array_equal(result, np.full(64, -1.0))
            assert (q[0] == 2.0) == (result is out)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("HloModule m, num_partitions=2\n\nENTRY e {\n  ROOT p = f32[4] parameter(0)\n}\n", "HLO334"),
        ("HloModule m\n\nENTRY e {\n  ROOT c = f32[4] constant({...})\n}\n", "HLO407"),
        (
            "HloModule m\n\nENTRY e {\n  p = c64[8,8] parameter(0)\n  ROOT c = c64[8,8] cholesky(p), lower=true\n}\n",
            "HLO528",
        ),
    ],
)
def test_what_no_bundle_can_be_made_of(
    text: str, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.hlo").write_text(text)
    assert run(["build", str(tmp_path / "m.hlo"), "-o", str(tmp_path / "b")]) == 2
    assert f"{code} " in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["m.hlo"]


def test_a_folder_of_somebody_else_is_left_alone(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "notes.txt").write_text("mine")
    (tmp_path / "m.hlo").write_text(text())
    assert run(["build", str(tmp_path / "m.hlo"), "-o", str(tmp_path / "b")]) == 2
    assert "HLO331" in capsys.readouterr().err and (tmp_path / "b" / "notes.txt").read_text() == "mine"
    with pytest.raises(UsageError, match="is no bundle"):
        hlo_opt.jax.call(tmp_path / "b", jnp.zeros(3))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("jit_f", "jit_f"),
        ("a.b-1", "a_b_1"),
        ("1x", "module_1x"),
        ("main", "module_main"),
        ("class", "module_class"),
        ("_x", "module_x"),
        ('"; rm', "module___rm"),
        ("", "module"),
    ],
)
def test_names_are_identifiers(name: str, found: str) -> None:
    made = identifier(name)
    assert made.isidentifier() and made.isascii()
    assert made == found or name == '"; rm'


def test_a_name_that_c_does_not_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.hlo").write_text("HloModule m\n\nENTRY e {\n  ROOT p = f32[4] parameter(0)\n}\n")
    assert run(["build", str(tmp_path / "m.hlo"), "-o", str(tmp_path / "b"), "--name", "a b"]) == 2
    assert "HLO333" in (told := capsys.readouterr().err) and "--name a_b" in told
