"""Images and arrays, in and out of nets and files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import caffe
from caffe_tests.nets import inputs
from sirtaki_caffe.errors import CaffeError

RANDOM = np.random.default_rng(0)


@pytest.fixture
def transformer() -> caffe.io.Transformer:
    made = caffe.io.Transformer({"data": (1, 3, 4, 5)})
    made.set_transpose("data", (2, 0, 1))
    made.set_channel_swap("data", (2, 1, 0))
    made.set_raw_scale("data", 255)
    made.set_mean("data", np.array([104, 117, 123]))
    made.set_input_scale("data", 0.5)
    return made


def test_an_image_is_prepared_in_caffes_order(transformer: caffe.io.Transformer) -> None:
    image = RANDOM.random((4, 5, 3)).astype(np.float32)
    expected = (image.transpose(2, 0, 1)[::-1] * 255 - [[[104]], [[117]], [[123]]]) * 0.5
    np.testing.assert_allclose(transformer.preprocess("data", image), expected, rtol=1e-5)


def test_what_was_prepared_is_undone(transformer: caffe.io.Transformer) -> None:
    image = RANDOM.random((4, 5, 3)).astype(np.float32)
    prepared = transformer.preprocess("data", image)
    np.testing.assert_allclose(transformer.deprocess("data", prepared), image, atol=1e-6)


def test_an_image_of_another_size_is_resized(transformer: caffe.io.Transformer) -> None:
    assert transformer.preprocess("data", RANDOM.random((9, 7, 3))).shape == (3, 4, 5)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda t: t.set_mean("data", np.zeros(2)), "a mean of 2 values for 3 channels"),
        (lambda t: t.set_mean("data", np.zeros((2, 4, 5))), r"\[2, 4, 5\] for 3 channels"),
        (lambda t: t.set_channel_swap("data", (1, 0)), "3 channels, not 2"),
        (lambda t: t.set_transpose("data", (1, 0)), "3 axes, not 2"),
        (lambda t: t.set_raw_scale("dta", 1), "'dta' is none of the net's inputs"),
    ],
)
def test_what_does_not_fit_the_input_is_refused(
    transformer: caffe.io.Transformer, call: object, why: str
) -> None:
    with pytest.raises(CaffeError, match=why):
        call(transformer)


def test_a_mean_image_of_another_size_is_resized(transformer: caffe.io.Transformer) -> None:
    transformer.set_mean("data", np.full((3, 8, 10), 7.0))
    assert np.array_equal(transformer.mean["data"], np.full((3, 4, 5), 7.0))


def test_images_are_read_as_floats(tmp_path: Path) -> None:
    pixels = RANDOM.integers(0, 256, (4, 5, 3), dtype=np.uint8)
    path = tmp_path / "x.png"
    Image.fromarray(pixels).save(path)
    np.testing.assert_allclose(caffe.io.load_image(path), pixels / 255, atol=1e-7)
    grey = caffe.io.load_image(path, color=False)
    assert grey.shape == (4, 5, 1)
    assert grey.dtype == np.float32
    Image.fromarray(pixels[:, :, 0]).save(path)
    assert np.array_equal(caffe.io.load_image(path)[:, :, 2], np.float32(pixels[:, :, 0] / 255))


def test_what_is_no_image_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(b"no image")
    with pytest.raises(CaffeError, match=r"x\.png: not a readable image"):
        caffe.io.load_image(path)


def test_resizing_takes_the_middle_of_pixels() -> None:
    image = np.arange(4, dtype=np.float32).reshape(1, 4, 1)
    assert np.array_equal(caffe.io.resize_image(image, (1, 2)).ravel(), [0.5, 2.5])
    assert np.array_equal(
        caffe.io.resize_image(image, (1, 8)).ravel(), [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3]
    )
    assert np.array_equal(caffe.io.resize_image(image, (2, 2), 0).ravel(), [0, 2, 0, 2])
    with pytest.raises(CaffeError, match="interp_order 2"):
        caffe.io.resize_image(image, (1, 2), 2)


def test_ten_crops_are_the_corners_the_centre_and_their_mirrors() -> None:
    image = np.arange(16, dtype=np.float32).reshape(4, 4, 1)
    crops = caffe.io.oversample([image, image + 100], (2, 2))
    assert crops.shape == (20, 2, 2, 1)
    assert [crop[0, 0, 0] for crop in crops[:5]] == [0, 2, 8, 10, 5]
    assert np.array_equal(crops[5:10], crops[:5, :, ::-1])
    assert np.array_equal(crops[10:], crops[:10] + 100)
    with pytest.raises(CaffeError, match="do not fit"):
        caffe.io.oversample([image], (5, 2))


def test_arrays_go_through_blobs() -> None:
    array = RANDOM.random((2, 3, 4)).astype(np.float32)
    blob = caffe.io.array_to_blobproto(array, 2 * array)
    assert list(blob.shape.dim) == [2, 3, 4]
    assert np.array_equal(caffe.io.blobproto_to_array(blob), array)
    assert np.array_equal(caffe.io.blobproto_to_array(blob, return_diff=True), 2 * array)
    text = caffe.io.arraylist_to_blobprotovector_str([array, array[0]])
    found = caffe.io.blobprotovector_str_to_arraylist(text)
    assert np.array_equal(found[0], array)
    assert np.array_equal(found[1], array[0])


def test_a_blob_without_a_shape_is_a_value_error() -> None:
    blob = caffe.proto.caffe_pb2.BlobProto()
    blob.data.extend([0.0] * 100)
    with pytest.raises(ValueError, match="blob"):
        caffe.io.blobproto_to_array(blob)


def test_arrays_go_through_datums() -> None:
    pixels = RANDOM.integers(0, 256, (3, 4, 5), dtype=np.uint8)
    datum = caffe.io.array_to_datum(pixels, 7)
    assert (datum.channels, datum.height, datum.width, datum.label) == (3, 4, 5, 7)
    assert datum.data == pixels.tobytes()
    assert np.array_equal(caffe.io.datum_to_array(datum), pixels)
    floats = RANDOM.random((1, 2, 2))
    np.testing.assert_allclose(
        caffe.io.datum_to_array(caffe.io.array_to_datum(floats)), floats, rtol=1e-6
    )
    datum.width = 6
    with pytest.raises(CaffeError, match=r"\[3, 4, 6\] holds 60 values"):
        caffe.io.datum_to_array(datum)
    with pytest.raises(CaffeError, match=r"not \[4, 5\]"):
        caffe.io.array_to_datum(pixels[0])


def test_a_classifier_prepares_images_and_averages_over_crops(tmp_path: Path) -> None:
    text = inputs("data", (3, 1, 4, 4))
    text += 'layer { name: "p" type: "Pooling" bottom: "data" top: "p" '
    text += "pooling_param { pool: AVE global_pooling: true } }"
    (tmp_path / "net.prototxt").write_text(text)
    caffe.Net(tmp_path / "net.prototxt", caffe.TEST).save(tmp_path / "w.caffemodel")
    files = tmp_path / "net.prototxt", tmp_path / "w.caffemodel"
    classifier = caffe.Classifier(*files, image_dims=(6, 6), raw_scale=2, mean=np.array([1.0]))
    images = [RANDOM.random((6, 6, 1)).astype(np.float32) for _ in range(4)]
    centre = classifier.predict(images, oversample=False)
    expected = [2 * image[1:5, 1:5].mean() - 1 for image in images]
    np.testing.assert_allclose(centre.ravel(), expected, rtol=1e-5)
    crops = caffe.io.oversample(images, (4, 4)).reshape(4, -1)
    np.testing.assert_allclose(
        classifier.predict(images).ravel(), 2 * crops.mean(axis=1) - 1, rtol=1e-4
    )
