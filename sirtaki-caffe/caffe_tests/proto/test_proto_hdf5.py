"""Weights and states in HDF5."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.schema import NetParameter
from sirtaki_caffe.proto.state import State, read_state, write_state
from sirtaki_caffe.proto.text import parse
from sirtaki_caffe.proto.weights import Saved, read_weights, write_weights

WEIGHT = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
BIAS = np.array([-1, 0.5], np.float32)
FACTOR = np.array(0.25, np.float32)


def net(*names: str) -> Any:
    return parse("".join(f"layer {{ name: '{name}' }}" for name in names), NetParameter, "net")


def contents(path: Path) -> dict[str, list[Any] | float | None]:
    """What is in a file: numbers of datasets, None for groups."""
    found: dict[str, Any] = {}

    def see(name: str, each: Any) -> None:
        found[name] = each[()].tolist() if isinstance(each, h5py.Dataset) else None

    with h5py.File(path) as file:
        file.visititems(see)
    return found


def test_weights_are_datasets_in_a_group_for_each_layer(tmp_path: Path) -> None:
    path = tmp_path / "net.caffemodel.h5"
    blobs = {
        "fc": [Saved(WEIGHT, None, True), Saved(BIAS, None, True)],
        "twin": [Saved(WEIGHT, None, False), Saved(FACTOR, None, True)],
    }
    write_weights(path, net("data", "fc", "twin"), blobs)
    assert contents(path) == {
        "data": None,
        "data/data": None,
        "data/fc": None,
        "data/fc/0": WEIGHT.tolist(),
        "data/fc/1": BIAS.tolist(),
        "data/twin": None,
        "data/twin/1": 0.25,
    }
    with h5py.File(path) as file:
        assert file["data/fc/0"].dtype == "<f4"
        assert file["data/fc/0"].shape == (2, 3)


def test_gradients_are_kept_of_all_blobs_also_of_shared_ones(tmp_path: Path) -> None:
    path = tmp_path / "net.caffemodel.h5"
    blobs = {"a": [Saved(WEIGHT, -WEIGHT, True)], "b": [Saved(WEIGHT, 2 * WEIGHT, False)]}
    write_weights(path, net("a", "b"), blobs)
    assert contents(path) == {
        "data": None,
        "data/a": None,
        "data/a/0": WEIGHT.tolist(),
        "data/b": None,
        "diff": None,
        "diff/a": None,
        "diff/a/0": (-WEIGHT).tolist(),
        "diff/b": None,
        "diff/b/0": (2 * WEIGHT).tolist(),
    }


def test_weights_are_read_by_the_names_of_their_layers(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"  # its first bytes tell, not its name
    names = ("inception/1x1", "inception/3x3/reduce", "data", "bn")
    blobs = {
        names[0]: [Saved(BIAS, None, True)] * 11,
        names[1]: [Saved(WEIGHT.astype(np.float64), None, True)],
        "bn": [Saved(FACTOR, None, False), Saved(FACTOR, None, True), Saved(BIAS, None, False)],
    }
    write_weights(tmp_path / "a.h5", net(*names), blobs)
    (tmp_path / "a.h5").rename(path)
    found = {layer.name: layer.blobs for layer in read_weights(path)}
    assert {layer.kind for layer in read_weights(path)} == {""}
    assert found.keys() == set(names)
    assert found["data"] == []
    assert [blob.tolist() for blob in found[names[0]]] == [BIAS.tolist()] * 11
    assert found[names[1]][0].dtype == np.float64
    assert [None if blob is None else blob.tolist() for blob in found["bn"]] == [None, 0.25]


@pytest.mark.parametrize(
    ("names", "refused"),
    [
        *((["a", "a/0"], "a/0"), (["a/0", "a"], "a/0"), (["a/0/b", "a"], "a/0/b")),
        *((["b", "b"], "b"), (["b", ""], ""), (["/b"], "/b"), (["b/./c"], "b/./c")),
    ],
)
def test_a_name_that_hdf5_has_no_place_for_is_refused(
    tmp_path: Path, names: list[str], refused: str
) -> None:
    blobs = {"a": [Saved(BIAS, None, True)]}
    with pytest.raises(CaffeError, match=f"HDF5 has no place for a layer '{refused}' beside"):
        write_weights(tmp_path / "net.h5", net(*names), blobs)
    assert list(tmp_path.iterdir()) == []


def test_a_state_is_written_as_caffe_does(tmp_path: Path) -> None:
    path = tmp_path / "net.solverstate.h5"
    write_state(path, State(7, "net.caffemodel.h5", [WEIGHT, BIAS], 2))
    plain = {
        "iter": [7],
        "learned_net": b"net.caffemodel.h5",
        "current_step": [2],
        "history": None,
        "history/0": WEIGHT.tolist(),
        "history/1": BIAS.tolist(),
    }
    assert contents(path) == plain
    with h5py.File(path) as file:
        kind = file["learned_net"].id.get_type()
        assert kind.get_size() == len("net.caffemodel.h5") + 1
        assert kind.get_strpad() == h5py.h5t.STR_NULLTERM
        assert file["iter"].dtype == "<i4"
    write_state(path, State(7, "net.caffemodel.h5", [WEIGHT, BIAS], 2, 0.25, 5))
    assert contents(path) == {**plain, "minimum_loss": [0.25], "iter_last_event": [5]}


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "net.solverstate.h5"
    write_state(
        path, State(7, "ü.caffemodel.h5", [np.float32(index) for index in range(12)], 2, 1, 3)
    )
    state = read_state(path)
    assert state == State(7, "ü.caffemodel.h5", list(range(12)), 2, 1, 3)
    write_state(path, State(1 << 30, "", []))
    assert read_state(path) == State(1 << 30, "", [])


def external(path: Path) -> None:
    (path.parent / "other").write_bytes(bytes(8))
    with h5py.File(path, "w") as file:
        file.create_dataset("data/a/0", (2,), "f4", external=str(path.parent / "other"))


def with_file(make: Callable[[Any], object]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with h5py.File(path, "w") as file:
            make(file)

    return write


def cycle(file: Any) -> None:
    group = file.create_group("data/a")
    group["again"] = group


def twice(file: Any) -> None:
    file["data/a/0"] = WEIGHT
    file["data/a/1"] = file["data/a/0"]


def linked(link: Any) -> Callable[[Path], None]:
    return with_file(lambda file: file.create_group("data/a").__setitem__("0", link))


def virtual(file: Any) -> None:
    layout = h5py.VirtualLayout((2,), "f4")
    layout[:] = h5py.VirtualSource(".", "x", (2,))
    file.create_virtual_dataset("data/a/0", layout)


def deep(file: Any) -> None:
    file.create_group("data/" + "/".join("a" * 70))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100)), "no HDF5 file, or is"),
        (with_file(lambda file: None), "it has no group 'data'"),
        (with_file(lambda file: file.create_group("data")), "there are no layers in it"),
        (
            with_file(lambda file: file.create_dataset("data/a/0", (2**40,), "f4")),
            "layer 'a', blob 0 says 4398046511104 bytes, 0 are in the file",
        ),
        (
            with_file(
                lambda file: file.create_dataset(
                    "data/a/0", (2**40,), "f4", chunks=(1024,), compression="gzip"
                )
            ),
            "layer 'a', blob 0 makes more than 64 bytes of each of the file",
        ),
        (with_file(lambda file: file.create_dataset("data/a/0", data="text")), "holds no numbers"),
        (with_file(lambda file: file.create_dataset("data/a/0", dtype="f4")), "is no array"),
        (
            with_file(lambda file: file.create_dataset("data/a/0", (9,), "f4", compression="lzf")),
            "layer 'a', blob 0 is stored in a way that is refused",
        ),
        (linked(h5py.SoftLink("/data")), "'0' leads to another place"),
        (linked(h5py.ExternalLink("/etc/passwd", "/x")), "'0' leads to another place"),
        (with_file(cycle), "group 'again' has a second name"),
        (with_file(twice), "layer 'a', blob 1 has a second name"),
        (with_file(virtual), "is stored in a way that is refused"),
        (external, "is stored in a way that is refused"),
        (with_file(deep), "more than 64 groups in one another"),
    ],
)
def test_a_file_that_holds_no_weights_is_refused(
    tmp_path: Path, make: Callable[[Path], None], error: str
) -> None:
    path = tmp_path / "net.h5"
    make(path)
    with pytest.raises(CaffeError) as raised:
        read_weights(path)
    assert str(path) in str(raised.value)
    assert error in str(raised.value)


def test_compressed_weights_are_read(tmp_path: Path) -> None:
    path = tmp_path / "net.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("data/a/0", data=WEIGHT, compression="gzip", shuffle=True)
    assert (read_weights(path)[0].blobs[0] == WEIGHT).all()


def history(**datasets: Any) -> Callable[[Path], None]:
    def make(file: Any) -> None:
        for name, value in {"iter": [1], "history/0": BIAS, **datasets}.items():
            if value is not None:
                file[name] = value

    return with_file(make)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda path: path.write_bytes(b"\x08\x01"), "is no HDF5 file, or is damaged"),
        (history(iter=None), "it has no 'iter'"),
        (history(iter=[1, 2]), "iter is not a number"),
        (history(iter=[float("nan")]), "iter is not a number"),
        (history(iter="1"), "iter holds no numbers"),
        (history(learned_net=[1]), "learned_net is no string"),
        (history(**{"history/2": BIAS}), "history has no blob 1"),
        (history(**{"history/1": "x"}), "history, blob 1 holds no numbers"),
    ],
)
def test_a_file_that_holds_no_state_is_refused(
    tmp_path: Path, make: Callable[[Path], None], error: str
) -> None:
    path = tmp_path / "net.solverstate.h5"
    make(path)
    with pytest.raises(CaffeError) as raised:
        read_state(path)
    assert str(path) in str(raised.value)
    assert error in str(raised.value)
