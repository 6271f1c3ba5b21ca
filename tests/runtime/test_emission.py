import json
import re
from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.diag import BackendError, UsageError
from hlo_opt.runtime.cupy import device as cupy_device
from hlo_opt.runtime.driver import emission

DUMPS = Path(__file__).parents[2] / "testdata" / "dumps"
ADD = """HloModule m
ENTRY e {
  a = f32[8]{0} parameter(0)
  b = f32[8]{0} add(a, a)
  c = f32[8]{0} add(b, b)
  z = f32[0]{0} slice(c), slice={[0:0]}
  ROOT r = (f32[8]{0}, f32[0]{0}) tuple(c, z)
}
"""


def listing(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_every_instruction_that_works_is_in_the_manifest_once(tmp_path: Path) -> None:
    hlo_opt.emit(hlo_opt.parse(ADD), tmp_path / "o")
    manifest = json.loads((tmp_path / "o" / "manifest.json").read_text())
    assert (
        list(manifest) == ["target", "options", "kernels", "launches", "library"] and manifest["target"] == "h100_sxm"
    )
    assert [(row["instruction"], row["computation"]) for row in manifest["launches"]] == [("b", "e"), ("c", "e")]
    (row,) = manifest["library"]
    assert (row["instruction"], row["call"]) == ("z", "slice") and row["est_us"] >= 1
    (kernel,) = manifest["kernels"]
    assert set(kernel) == {
        *("symbol", "file", "plan", "grid", "block", "shared_bytes", "cooperative", "cluster", "kept_bytes"),
        *("inputs", "outputs", "source"),
    }
    shape = {"type": "f32", "dimensions": [8], "minor_to_major": [0], "bytes": 32}
    assert (kernel["inputs"], kernel["outputs"], kernel["plan"]) == ([shape, shape], [shape], "loop")
    source = (tmp_path / "o" / kernel["file"]).read_text()
    assert re.search(rf'extern "C" __global__ void [^;{{]*\b{kernel["symbol"]}\(', source)


def test_waiting_for_a_transfer_is_no_call(tmp_path: Path) -> None:
    hlo_opt.emit(
        hlo_opt.parse(
            "HloModule m, replica_count=2\n\nadd {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT s = "
            "f32[] add(x, y)\n}\n\n"
            "ENTRY e {\n  a = f32[8]{0} parameter(0)\n  s = f32[8]{0} all-reduce-start(a), to_apply=add\n  ROOT d = "
            "f32[8]{0} all-reduce-done(s)\n}\n"
        ),
        tmp_path / "o",
    )
    manifest = json.loads((tmp_path / "o" / "manifest.json").read_text())
    assert manifest["launches"] == [] and [row["instruction"] for row in manifest["library"]] == ["s"]


@pytest.mark.parametrize("name", ["mlp_train_step", "nested", "shuffle"])
def test_files_are_those_of_the_manifest_and_the_same_every_time(name: str, tmp_path: Path) -> None:
    text = (DUMPS / f"{name}.hlo").read_text()
    for folder in ("a", "b", "b"):
        hlo_opt.emit(hlo_opt.parse(text), tmp_path / folder)
    assert listing(tmp_path / "a") == listing(tmp_path / "b")
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    kernels = {k["file"] for k in manifest["kernels"]}
    assert set(listing(tmp_path / "a")) - {"constants.npz"} == {*kernels, "README.md", "driver.py", "manifest.json"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


def test_a_folder_of_ours_is_replaced_and_an_empty_one_filled(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "o"
    target.mkdir(parents=True)
    hlo_opt.emit(hlo_opt.parse(ADD), target)
    (target / "kernels" / "old.cu").write_text("old")
    hlo_opt.emit(hlo_opt.parse(ADD), target)
    assert not (target / "kernels" / "old.cu").exists() and (target / "driver.py").exists()


def test_other_folders_and_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match=r"HLO330 .*file is not a folder"):
        hlo_opt.emit(hlo_opt.parse(ADD), tmp_path / "file")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match=r"HLO331 .*thesis\.tex, which hlo-opt did not write"):
        hlo_opt.emit(hlo_opt.parse(ADD), mine)
    (mine / "manifest.json").write_text("{}")
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        hlo_opt.emit(hlo_opt.parse(ADD), mine)
    assert (mine / "thesis.tex").read_text() == "x"
    with pytest.raises(UsageError, match="HLO332"):
        hlo_opt.emit(hlo_opt.parse(ADD), tmp_path / "file" / "below")


def test_nothing_is_left_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(emission, "put_in_place", full)
    with pytest.raises(UsageError, match="No space left"):
        hlo_opt.emit(hlo_opt.parse(ADD), tmp_path / "o")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_emission_keeps_the_old_folder(tmp_path: Path) -> None:
    hlo_opt.emit(hlo_opt.parse(ADD), tmp_path / "o")
    before = listing(tmp_path / "o")
    with pytest.raises(BackendError):
        hlo_opt.emit(
            hlo_opt.parse(
                "HloModule m\nENTRY e {\n  a = f32[2]{0} parameter(0)\n  ROOT b = f32[2]{0} custom-call(a), "
                'custom_call_target="unheard"\n}\n'
            ),
            tmp_path / "o",
        )
    assert listing(tmp_path / "o") == before


def test_the_page_counts_in_words(tmp_path: Path) -> None:
    hlo_opt.emit(hlo_opt.parse(ADD), tmp_path / "o")
    page = (tmp_path / "o" / "README.md").read_text()
    assert "`kernels/*.cu`: 1 distinct kernel for NVIDIA H100 SXM, one CUDA text each" in page
    assert "- 2 kernel launches and 1 library call are in the program" in page


def test_a_kernel_says_which_python_lines_it_comes_from(tmp_path: Path) -> None:
    """In characters that cannot end the comment."""
    lines = "\n".join(
        f"  n{k} = f32[64] {'negate' if k % 2 else 'tanh'}({f'n{k - 1}' if k else 'p'}), "
        f'metadata={{source_file="a\\\\{k}.py" source_line={k + 1}}}'
        for k in range(7)
    )
    text = f"HloModule m\n\nENTRY e {{\n  p = f32[64] parameter(0)\n{lines}\n  ROOT r = f32[64] copy(n6)\n}}\n"
    module, _ = hlo_opt.fuse(hlo_opt.parse(text))
    hlo_opt.emit(module, tmp_path / "emitted")
    (kernel,) = (tmp_path / "emitted" / "kernels").iterdir()
    first = kernel.read_text().splitlines()[:7]
    assert all(line.startswith("// from a_") and "\\" not in line for line in first[:5])
    assert first[5] == "// from and 2 more lines: see manifest.json" and first[6].startswith("// loop: ")


def test_a_grid_that_no_gpu_takes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy_device, "MOST_BLOCKS", 0)
    with pytest.raises(BackendError, match=r"HLO525 no driver: .* blocks, and a GPU takes 0"):
        hlo_opt.emit(hlo_opt.parse((DUMPS / "softmax.hlo").read_text()), tmp_path / "emitted")
    assert not (tmp_path / "emitted").exists()


def test_a_folder_that_another_thread_is_writing_stays(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with emission.replacing(target) as partial:
        with pytest.raises(UsageError, match="out"), emission.replacing(target):
            pass
        (partial / "text").write_text("whole", encoding="utf-8")
    assert (target / "text").read_text(encoding="utf-8") == "whole"
