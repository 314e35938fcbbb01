"""Input, DummyData and MemoryData."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from caffe_tests.data.records import layer_of
from sirtaki_caffe.errors import LayerError

MEMORY = (
    'name: "m" type: "MemoryData" top: "data" top: "label" '
    "memory_data_param { batch_size: 2 channels: 1 height: 2 width: 3 }"
)


def test_input_is_zeros_until_it_is_written() -> None:
    layer = layer_of('type: "Input" top: "a" top: "b" input_param { shape { dim: 2 dim: 3 } }')
    assert layer.shapes([]) == [(2, 3), (2, 3)]
    layer.forward([])[1][0, 1] = 7
    assert layer.forward([])[0].abs().sum() == 0
    assert layer.forward([])[1].sum() == 7


def test_input_has_a_shape_for_each_top() -> None:
    text = (
        'type: "Input" top: "a" top: "b" input_param { shape { dim: 2 } shape { dim: 3 dim: 1 } }'
    )
    assert layer_of(text).shapes([]) == [(2,), (3, 1)]


def test_a_wrong_number_of_shapes_is_refused() -> None:
    shapes = "shape { dim: 2 } " * 2
    with pytest.raises(LayerError, match="2 shape for 3 tops"):
        layer_of(f'type: "Input" top: "a" top: "b" top: "c" input_param {{ {shapes} }}')


def test_memory_data_comes_batch_by_batch_and_round_again() -> None:
    layer = layer_of(MEMORY)
    assert layer.shapes([]) == [(2, 1, 2, 3), (2,)]
    images = np.arange(24, dtype=np.float32).reshape(4, 1, 2, 3)
    layer.reset(images, np.array([5, 6, 7, 8]))
    images[:] = 0  # it has copied them
    assert layer.forward([])[1].tolist() == [5, 6]
    data, labels = layer.forward([])
    assert torch.equal(data, torch.arange(12.0, 24).reshape(2, 1, 2, 3))
    assert labels.tolist() == [7, 8]
    assert layer.forward([])[1].tolist() == [5, 6]


def test_memory_data_without_data_says_so() -> None:
    with pytest.raises(LayerError, match=r"'m'.*reset"):
        layer_of(MEMORY).forward([])


@pytest.mark.parametrize(
    ("shape", "labels", "why"),
    [
        ((3, 1, 2, 3), 3, "a multiple of 2"),
        ((4, 1, 3, 2), 4, "1x2x3"),
        ((4, 1, 2, 3), 3, "3 labels for 4"),
        ((0, 1, 2, 3), 0, "do not fit"),
    ],
)
def test_memory_data_refuses_what_does_not_fit(
    shape: tuple[int, ...], labels: int, why: str
) -> None:
    with pytest.raises(LayerError, match=why):
        layer_of(MEMORY).reset(np.zeros(shape), np.zeros(labels))


DUMMY = 'name: "d" type: "DummyData" top: "a" top: "b" dummy_data_param '


def test_dummy_data_without_filler_is_zeros() -> None:
    layer = layer_of(DUMMY + "{ shape { dim: 2 dim: 3 } }")
    assert layer.shapes([]) == [(2, 3), (2, 3)]
    assert [top.abs().sum() for top in layer.forward([])] == [0, 0]


def test_constants_are_filled_once_and_random_numbers_anew() -> None:
    layer = layer_of(
        DUMMY + "{ shape { dim: 9 } shape { dim: 4 dim: 2 } "
        'data_filler { value: 5 } data_filler { type: "gaussian" } }'
    )
    first, second = layer.forward([]), layer.forward([])
    assert first[0].tolist() == [5] * 9
    assert first[0] is second[0]
    assert first[1].shape == (4, 2)
    assert not torch.equal(first[1], second[1])


def test_four_sides_are_for_all_tops_or_one_each() -> None:
    text = "{ num: 2 num: 5 channels: 3 height: 4 width: 1 }"
    assert layer_of(DUMMY + text).shapes([]) == [(2, 3, 4, 1), (5, 3, 4, 1)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{ }", "give its shape"),
        ("{ num: 2 shape { dim: 1 } }", "give its shape"),
        ("{ num: 2 }", "go together"),
        ("{ shape { dim: 1 } data_filler { } data_filler { } data_filler { } }", "3 data_filler"),
        ('{ shape { dim: 1 } data_filler { type: "no" } }', "'d'.*filler of type 'no'"),
        ("{ shape { dim: 100000 dim: 100000 } }", "more than 2.31 - 1 numbers"),
        ("{ shape { dim: -1 } }", "-1"),
    ],
)
def test_dummy_data_refuses_what_does_not_fit(text: str, why: str) -> None:
    with pytest.raises(LayerError, match=why):
        layer_of(DUMMY + text)
