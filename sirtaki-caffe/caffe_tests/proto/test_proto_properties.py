"""What holds of every message and every array that there can be."""

from __future__ import annotations

import struct
from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor as F
from hypothesis import given, settings
from hypothesis import strategies as st

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.blobs import array_of, blob_of
from sirtaki_caffe.proto.grammar.opaque import AS_READ
from sirtaki_caffe.proto.grammar.parser import is_repeated
from sirtaki_caffe.proto.grammar.tokens import quoted, unquoted
from sirtaki_caffe.proto.schema import LayerParameter, NetParameter, SolverParameter, message_class
from sirtaki_caffe.proto.text import parse, text_of
from sirtaki_caffe.proto.upgrade import upgrade_net

_SCALARS = {
    F.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    F.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    F.TYPE_UINT32: st.integers(0, 2**32 - 1),
    F.TYPE_FLOAT: st.floats(width=32, allow_nan=False),
    F.TYPE_DOUBLE: st.floats(allow_nan=False),
    F.TYPE_BOOL: st.booleans(),
    F.TYPE_STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
}


@st.composite
def messages(draw: Any, kind: Any, deep: int = 3) -> Any:
    """A message of a kind, with some of its fields."""
    message = kind()
    fields = [field for field in kind.DESCRIPTOR.fields if field.name != AS_READ]
    if deep == 0:
        fields = [field for field in fields if field.message_type is None]
    required = [field for field in fields if field.is_required]
    some = draw(st.lists(st.sampled_from(fields), unique=True, max_size=4)) if fields else []
    for field in {field.name: field for field in (*required, *some)}.values():
        count = draw(st.integers(1, 2)) if is_repeated(field) else 1
        values = [draw(values_of(field, deep)) for _ in range(count)]
        if is_repeated(field):
            getattr(message, field.name).extend(values)
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(values[0])
            getattr(message, field.name).SetInParent()
        else:
            setattr(message, field.name, values[0])
    return message


def values_of(field: Any, deep: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        return messages(message_class(field.message_type.name), deep - 1)
    if field.type == F.TYPE_ENUM:
        return st.sampled_from([value.number for value in field.enum_type.values])
    return _SCALARS[field.type]


@settings(max_examples=150, deadline=None)
@given(message=st.one_of(messages(LayerParameter), messages(SolverParameter)))
def test_a_message_is_the_same_after_it_was_written_and_read(message: Any) -> None:
    text = text_of(message)
    assert parse(text, type(message), "text") == message
    # And protobuf's own reader takes it for the same, its own text is the same to ours.
    assert text_format.Parse(text, type(message)()) == message
    assert parse(text_format.MessageToString(message), type(message), "text") == message


@settings(max_examples=100, deadline=None)
@given(
    blob=arrays.arrays(
        st.sampled_from([np.dtype(np.float32), np.dtype(np.float64)]),
        arrays.array_shapes(min_dims=0, min_side=0, max_dims=6),
    )
)
def test_an_array_is_the_same_after_it_was_a_message(blob: Any) -> None:
    found = array_of(blob_of(blob))
    if blob.size == 0:
        # An empty blob has no numbers that could tell their kind.
        blob = blob.astype(np.float32)
    assert (found.dtype, found.shape, found.tobytes()) == (blob.dtype, blob.shape, blob.tobytes())


@given(content=st.binary())
def test_bytes_are_the_same_after_they_were_quoted(content: bytes) -> None:
    assert quoted(content).isascii()
    assert unquoted(quoted(content)) == content


@settings(max_examples=150, deadline=None)
@given(value=st.floats(width=32))
def test_a_number_is_the_same_after_it_was_written_and_read(value: float) -> None:
    layer = LayerParameter(loss_weight=[value])
    (found,) = parse(text_of(layer), LayerParameter, "text").loss_weight
    if value == value:
        assert struct.pack("f", found) == struct.pack("f", value)
    else:
        assert found != found


_WORDS = (
    *(
        "name",
        ":",
        "layer",
        "{",
        "}",
        "'a'",
        '"',
        "\n",
        "input_dim",
        "5",
        "-",
        ".5",
        "1e",
        "#",
        ";",
    ),
    *("[", "]", ",", "<", ">", "param", "lr_mult", "type", "\\", "top", "state", "phase", "TEST"),
)


@settings(max_examples=300, deadline=None)
@given(words=st.lists(st.sampled_from(_WORDS), max_size=30))
def test_any_text_is_a_net_or_refused_with_a_place(words: list[str]) -> None:
    text = " ".join(words)
    try:
        net = parse(text, NetParameter, "net")
    except CaffeError as error:
        where, line, column, _ = str(error).split(":", 3)
        assert where == "net"
        assert 1 <= int(line) <= text.count("\n") + 1
        assert 1 <= int(column) <= len(text.split("\n")[int(line) - 1]) + 1
    else:
        assert upgrade_net(upgrade_net(net)) == upgrade_net(net)
