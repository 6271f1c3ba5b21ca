"""npz files: the types that NumPy writes and does not read, and what is no file of inputs."""

from __future__ import annotations

import pickle
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from hlo_opt import UsageError
from hlo_opt.cli.npz import Npz
from hlo_opt.ir import ELEMENT_TYPES


@pytest.mark.parametrize("name", [n for n, t in ELEMENT_TYPES.items() if t.numpy_name])
def test_every_type_is_read_as_savez_leaves_it(name: str, tmp_path: Path) -> None:
    given = np.array([[0, 1, 1], [1, 0, 1]]).astype(ELEMENT_TYPES[name].dtype)
    for write in (np.savez, np.savez_compressed):
        write(tmp_path / "a.npz", in0=given)
        with Npz(str(tmp_path / "a.npz")) as stored:
            assert stored.files == ["in0"] and stored.sizes("in0") == (2, 3)
            assert stored["in0"].tobytes() == given.tobytes() and stored["in0"].shape == (2, 3)


def test_layout_and_byte_order_are_those_of_the_machine_afterwards(tmp_path: Path) -> None:
    given = np.arange(6, dtype=">f4").reshape(2, 3)
    np.savez(tmp_path / "a.npz", swapped=given, columns=np.asfortranarray(given.astype(np.int16)), scalar=np.float64(2))
    with Npz(str(tmp_path / "a.npz")) as stored:
        assert stored["swapped"].dtype == np.float32 and stored["swapped"].tolist() == given.tolist()
        assert stored["columns"].tolist() == given.tolist() and stored["scalar"].shape == ()


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.array([{}]), "holds Python objects"),
        (np.zeros(2, [("a", "f4")]), "several fields"),
        (np.zeros(2, "datetime64[s]"), "datetime64"),
        (np.array(["a"]), "<U1"),
    ],
)
def test_what_no_input_can_be_is_refused_without_advice_of_numpy(array: object, words: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", in0=array)  # type: ignore[arg-type]
    with Npz(str(tmp_path / "a.npz")) as stored, pytest.raises(UsageError, match=words) as caught:
        stored["in0"]
    assert caught.value.code == "HLO401" and "pickle" not in str(caught.value)


def test_what_is_no_npz_file_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "whole.npz", in0=np.arange(1000.0))
    whole = (tmp_path / "whole.npz").read_bytes()
    for number, data in enumerate((b"", b"text", pickle.dumps([1]), whole[:100])):
        (tmp_path / f"{number}.npz").write_bytes(data)
        with pytest.raises(UsageError, match="not an npz file") as caught:
            Npz(str(tmp_path / f"{number}.npz"))
        assert "pickle" not in str(caught.value)
    with pytest.raises(UsageError, match="no such file"):
        Npz(str(tmp_path / "none.npz"))
    with pytest.raises(UsageError, match="a folder"):
        Npz(str(tmp_path))


def test_damage_within_is_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", in0=np.arange(1000.0).astype(ml_dtypes.bfloat16))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[1000] ^= 1
    (tmp_path / "a.npz").write_bytes(data)
    with Npz(str(tmp_path / "a.npz")) as stored, pytest.raises(UsageError, match=r"in0 cannot be read: Bad CRC"):
        stored["in0"]
