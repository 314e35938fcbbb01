"""The schema of Caffe's files: compiled as it stands, and what scripts see of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, text_format

from caffe.proto import caffe_pb2
from sirtaki_caffe.proto import schema
from tools.compile_caffe_schema import FOLDER, compiled


def messages() -> descriptor_pb2.FileDescriptorProto:
    return descriptor_pb2.FileDescriptorProto.FromString((FOLDER / "caffe.desc").read_bytes())


def test_what_is_read_is_what_the_schema_compiles_to() -> None:
    assert descriptor_pb2.FileDescriptorProto.FromString(compiled()) == messages()


def test_no_number_of_a_message_has_two_fields_and_no_field_is_of_another_file() -> None:
    for message in messages().message_type:
        numbers = [field.number for field in message.field]
        assert len(set(numbers)) == len(numbers)
        for field in message.field:
            assert not field.type_name or field.type_name.startswith(".caffe.")


@pytest.mark.parametrize(
    ("message", "field", "number", "default"),
    [
        ("LayerParameter", "clip_param", 148, ""),
        ("LayerParameter", "smooth_l1_loss_param", 10148, ""),
        ("LayerParameter", "eval_detection_param", 301, ""),
        ("NetParameter", "layer", 100, ""),
        ("SolverParameter", "solver_mode", 17, "GPU"),
        ("SolverParameter", "delta", 31, "1e-08"),
        ("SolverParameter", "local_gw_ratio", 51, "0.001"),
        ("DataParameter", "backend", 8, "LEVELDB"),
        ("BatchNormParameter", "moving_average_fraction", 2, "0.999"),
        ("TransformationParameter", "random_aspect_ratio_param", 16, ""),
        ("NormalizeParameter", "eps", 4, "1e-10"),
        ("AnnotatedDatum", "annotation_group", 3, ""),
        ("NormalizedBBox", "score", 7, ""),
        ("BatchSampler", "max_trials", 5, "100"),
        ("MultiBoxLossParameter", "mining_type", 20, "MAX_NEGATIVE"),
        ("MultiBoxLossParameter", "neg_pos_ratio", 12, "3"),
        ("PriorBoxParameter", "offset", 13, "0.5"),
        ("DetectionOutputParameter", "keep_top_k", 7, "-1"),
        ("DetectionEvaluateParameter", "overlap_threshold", 3, "0.5"),
        ("NonMaximumSuppressionParameter", "nms_threshold", 1, "0.3"),
        ("V1LayerParameter", "blob_share_mode", 1002, ""),
        ("V0LayerParameter", "hdf5_output_param", 1001, ""),
    ],
)
def test_fields_have_their_numbers_and_defaults(
    message: str, field: str, number: int, default: str
) -> None:
    (found,) = (
        each
        for each_message in messages().message_type
        if each_message.name == message
        for each in each_message.field
        if each.name == field
    )
    assert (found.number, found.default_value) == (number, default)


def test_scripts_find_messages_enums_and_values_in_caffe_pb2() -> None:
    net = caffe_pb2.NetParameter()
    text_format.Merge('name: "a" layer { name: "b" include { phase: TEST } }', net)
    assert net.layer[0].include[0].phase == caffe_pb2.TEST == 1
    assert caffe_pb2.Phase.Name(caffe_pb2.TRAIN) == "TRAIN"
    assert caffe_pb2.NetParameter is schema.NetParameter
    assert caffe_pb2.SolverParameter.SolverMode.Value("CPU") == caffe_pb2.SolverParameter.CPU == 0
    assert caffe_pb2.V1LayerParameter.CONVOLUTION == 4
    assert caffe_pb2.DESCRIPTOR.package == "caffe"
    assert str(net).startswith('name: "a"\n')
    with pytest.raises(AttributeError, match="Caffe's schema has no 'Foo'"):
        _ = caffe_pb2.Foo


def test_another_module_may_have_registered_messages_of_the_same_names(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(
        "from google.protobuf import descriptor_pb2, descriptor_pool\n"
        "file = descriptor_pb2.FileDescriptorProto(name='caffe.proto', package='caffe')\n"
        "file.message_type.add(name='NetParameter')\n"
        "descriptor_pool.Default().AddSerializedFile(file.SerializeToString())\n"
        "from sirtaki_caffe.proto.schema import NetParameter\n"
        "print(NetParameter(name='a').name)\n"
    )
    done = subprocess.run(
        [sys.executable, tmp_path / "other.py"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "a\n"
