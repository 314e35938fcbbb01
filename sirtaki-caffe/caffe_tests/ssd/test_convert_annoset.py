"""convert_annoset: annotations of three kinds become records."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import lmdb
import numpy as np
import pytest

from sirtaki_caffe.commands.main import main as caffe_main
from sirtaki_caffe.commands.tools.convert_annoset import main
from sirtaki_caffe.data.annotated.label_map import read_label_map
from sirtaki_caffe.data.annotated.records import AnnotatedDatum
from sirtaki_caffe.data.images import encode_image
from sirtaki_caffe.errors import CaffeError

MAP = 'item { name: "none" label: 0 } item { name: "cat" label: 1 } item { name: "7" label: 2 }'
XML = """<annotation><size><width>40</width><height>20</height></size>
<object><name>cat</name><difficult>1</difficult>
<bndbox><xmin>4</xmin><ymin>5</ymin><xmax>20</xmax><ymax>10</ymax></bndbox></object>
<object><name>7</name><bndbox><xmin>0</xmin><ymin>0</ymin><xmax>40</xmax><ymax>20</ymax></bndbox>
</object><object><name>cat</name>
<bndbox><xmin>0</xmin><ymin>0</ymin><xmax>10</xmax><ymax>20</ymax></bndbox></object></annotation>"""
JSON = {
    "image": {"height": 20, "width": 40},
    "annotation": [{"category_id": 7, "bbox": [4, 5, 16, 5], "iscrowd": 1}],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "map").write_text(MAP)
    (tmp_path / "a.png").write_bytes(encode_image(np.zeros((3, 20, 40), np.uint8), "png"))
    (tmp_path / "a.xml").write_text(XML)
    (tmp_path / "a.json").write_text(json.dumps(JSON))
    (tmp_path / "a.txt").write_text("2 4 5 20 10\n")
    return tmp_path


def converted(folder: Path, kind: str, *flags: str) -> list[tuple[bytes, AnnotatedDatum]]:
    (folder / "list").write_text(f"a.png a.{kind}\n")
    options = ["--anno_type=detection", f"--label_type={kind}", "--encoded", "--encode_type=png"]
    arguments = [*options, f"--label_map_file={folder}/map", *flags]
    assert main([*arguments, f"{folder}/", f"{folder}/list", f"{folder}/db"]) == 0
    with lmdb.open(str(folder / "db"), readonly=True) as database, database.begin() as reading:
        return [(key, AnnotatedDatum.FromString(value)) for key, value in reading.cursor()]


def boxes(record: AnnotatedDatum) -> list[tuple[int, int, list[float], bool]]:
    return [
        (
            group.group_label,
            each.instance_id,
            [round(getattr(each.bbox, side), 6) for side in ("xmin", "ymin", "xmax", "ymax")],
            each.bbox.difficult,
        )
        for group in record.annotation_group
        for each in group.annotation
    ]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            "xml",
            [
                (1, 0, [0.1, 0.25, 0.5, 0.5], True),
                (1, 1, [0, 0, 0.25, 1], False),
                (2, 0, [0, 0, 1, 1], False),
            ],
        ),
        ("json", [(2, 0, [0.1, 0.25, 0.5, 0.5], True)]),
        ("txt", [(2, 0, [0.1, 0.25, 0.5, 0.5], False)]),
        ("missing", []),
    ],
)
def test_annotations_become_boxes_by_label(
    folder: Path,
    kind: str,
    expected: list[tuple[int, int, list[float], bool]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    if kind == "missing":
        (folder / "a.xml").unlink()
    ((key, record),) = converted(folder, "xml" if kind == "missing" else kind)
    assert ("a.xml: there is no such file" in capsys.readouterr().err) == (kind == "missing")
    assert key == b"00000000_a.png"
    assert (record.type, record.datum.label, record.datum.encoded) == (0, -1, True)
    assert (record.datum.channels, record.datum.height, record.datum.width) == (3, 20, 40)
    assert boxes(record) == expected


def test_a_name_that_the_map_does_not_have_ends_it(folder: Path) -> None:
    (folder / "a.xml").write_text(XML.replace("cat", "dog"))
    with pytest.raises(CaffeError, match=r"a\.xml: the label map has no 'dog'"):
        converted(folder, "xml")


def test_corners_between_pixels_are_kept_and_words_refused(folder: Path) -> None:
    (folder / "a.xml").write_text(XML.replace("<xmax>10<", "<xmax>10.5<"))
    assert boxes(converted(folder, "xml")[0][1])[1] == (1, 1, [0, 0, 0.2625, 1], False)
    shutil.rmtree(folder / "db")
    (folder / "a.xml").write_text(XML.replace("<xmax>10<", "<xmax>ten<"))
    with pytest.raises(CaffeError, match=r"a\.xml: .*xmax 'ten' is not a number"):
        converted(folder, "xml")


def test_an_annotation_of_another_kind_is_named(folder: Path) -> None:
    (folder / "a.json").write_text("[]")
    with pytest.raises(CaffeError, match=r"a\.json: no annotation as json has it"):
        converted(folder, "json")


def test_sides_are_kept_between_a_least_and_a_most_length(folder: Path) -> None:
    for flag, height, width in (("--min_dim=40", 40, 80), ("--max_dim=20", 10, 20)):
        ((_, record),) = converted(folder, "xml", flag)
        assert (record.datum.height, record.datum.width) == (height, width)
        assert record.annotation_group[0].annotation[0].bbox.xmax == 0.5
        shutil.rmtree(folder / "db")
    with pytest.raises(CaffeError, match="leave out resize_width"):
        converted(folder, "xml", "--min_dim=4", "--resize_width=8", "--resize_height=8")


def test_a_label_map_is_made_of_a_list_of_names(folder: Path) -> None:
    (folder / "names").write_text("cat,5,a cat\ndog,7\n")
    flags = ("--include_background", "--delimiter=,")
    words = ["create_label_map", *flags, str(folder / "names"), str(folder / "made")]
    assert caffe_main(words) == 0
    assert read_label_map(folder / "made") == {0: "none_of_the_above", 5: "cat", 7: "dog"}
    assert 'display_name: "a cat"' in (folder / "made").read_text()


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ("cat 1\ndog 1\n", "names: the label '1' is there twice"),
        ("cat 1\ncat 2\n", "names: the name 'cat' is there twice"),
        ("cat 1\ndog x\n", "names:2: expected 'name [label [name shown]]', not 'dog x'"),
    ],
)
def test_a_list_that_makes_no_label_map_is_refused(
    folder: Path, capfd: pytest.CaptureFixture[str], names: str, why: str
) -> None:
    (folder / "names").write_text(names)
    words = [str(folder / "names"), str(folder / "made")]
    assert caffe_main(["create_label_map", *words]) == 1
    assert why in capfd.readouterr().err


def test_names_and_sizes_of_images_are_written(folder: Path) -> None:
    (folder / "images").write_text("a.png a.xml\n")
    (folder / "ids").write_text("a 17\n")
    words = ["get_image_size", f"{folder}/", f"{folder}/images", f"{folder}/sizes"]
    assert caffe_main(words) == 0
    assert (folder / "sizes").read_text() == "a 20 40\n"
    assert caffe_main([*words, f"--name_id_file={folder}/ids"]) == 0
    assert (folder / "sizes").read_text() == "17 20 40\n"
