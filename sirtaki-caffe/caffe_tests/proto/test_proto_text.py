"""Nets and solvers as text: what is read, what is refused and where, what is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.schema import LayerParameter, NetParameter, SolverParameter
from sirtaki_caffe.proto.text import parse, read_net, read_phases, read_solver, text_of


def net(text: str) -> str:
    return text_of(parse(text, NetParameter, "net"))


def layer(text: str) -> str:
    return text_of(parse(text, LayerParameter, "layer"))


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("name: 'a'", 'name: "a"\n'),
        ('name: "a" \'b\'\n "c"', 'name: "abc"\n'),
        ("input: 'a', input: 'b';", 'input: "a"\ninput: "b"\n'),
        ("input: ['a', 'b'] input_dim: []", 'input: "a"\ninput: "b"\n'),
        ("layer: { name: 'a' }", 'layer {\n  name: "a"\n}\n'),
        ("layer < name: 'a' >", 'layer {\n  name: "a"\n}\n'),
        ("layer [{name: 'a'}, {name: 'b'}]", 'layer {\n  name: "a"\n}\nlayer {\n  name: "b"\n}\n'),
        ("state { }", "state {\n}\n"),
        ("# one\nname: 'a' # two\n#three", 'name: "a"\n'),
        ("\ufeffname: 'a'\r\n", 'name: "a"\n'),
        ("input_dim: 010 input_dim: 0x10", "input_dim: 8\ninput_dim: 16\n"),
        ("input_dim: -5 input_dim: - 5", "input_dim: -5\ninput_dim: -5\n"),
        ("force_backward: true debug_info: f", "force_backward: true\ndebug_info: false\n"),
        ("force_backward: 1 debug_info: 0", "force_backward: true\ndebug_info: false\n"),
        ("force_backward: 01 debug_info: 0x0", "force_backward: true\ndebug_info: false\n"),
        ("state { phase: TEST }", "state {\n  phase: TEST\n}\n"),
        ("state { phase: 0 }", "state {\n  phase: TRAIN\n}\n"),
        (r"name: '\x41\102\u00e9\n\'\"'", r'name: "AB\303\251\n\'\""' + "\n"),
        ("name: 'é'", r'name: "\303\251"' + "\n"),
        ("", ""),
    ],
)
def test_text_is_read_as_protobuf_defines_it(text: str, meaning: str) -> None:
    assert net(text) == meaning


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        *(
            ("1", "1"),
            ("1.", "1"),
            (".5", "0.5"),
            ("1e-5", "1e-05"),
            ("1f", "1"),
            ("-2.5F", "-2.5"),
        ),
        *(("1e10", "1e+10"), ("100000", "100000"), ("1000000", "1e+06"), ("0.1", "0.1")),
        *(("0.0001", "0.0001"), ("0.00001", "1e-05"), ("16777217", "16777216"), ("inf", "inf")),
        *(("-inf", "-inf"), ("nan", "nan"), ("1e999", "inf"), ("0.12345678", "0.12345678")),
        *(("0.00390625", "0.00390625"), ("0.9999999", "0.9999999"), ("3.1415927", "3.1415927")),
    ],
)
def test_numbers_are_written_as_cpp_does(word: str, shown: str) -> None:
    assert layer(f"loss_weight: {word}") == f"loss_weight: {shown}\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("name: 3", "net:1:7: expected a string in quotes, found '3'"),
        ("\n  nmae: 'a'", "net:2:3: NetParameter has no field 'nmae'; did you mean 'name'?"),
        ("layer {\n\tname: 'a' name: 'b' }", "net:2:12: LayerParameter has 'name' once only"),
        ("state {} state {}", "net:1:10: NetParameter has 'state' once only"),
        ("name: 'a'\nlayer {", "net:2:1: 'layer' is not closed by '}'"),
        ("layer { name: 'a' >", "net:1:19: expected the name of a field, found '>'"),
        ("layer ( )", "net:1:7: unexpected character '('"),
        ("name: 'a\n'", "net:1:7: the string that begins here does not end on this line"),
        ("name: '\\q'", "net:1:7: unknown escape \\q"),
        ("name: '\\ud800'", "net:1:7: \\ud800 is not a character"),
        ("name: '\\377'", "net:1:7: the string is not UTF-8"),
        ("name 'a'", "net:1:6: expected ':' behind 'name', found 'a'"),
        ("layer 'a'", "net:1:7: expected '{' behind 'layer', found 'a'"),
        ("input_dim: 1.5", "net:1:12: 'input_dim' is a whole number, found '1.5'"),
        ("input_dim: x", "net:1:12: 'input_dim' is a whole number, found 'x'"),
        (
            "input_dim: 3000000000",
            "net:1:12: 'input_dim' is from -2147483648 to 2147483647, found '3000000000'",
        ),
        ("input_dim: 1x", "net:1:12: '1x' is not a number"),
        ("input_dim: 08", "net:1:12: 'input_dim' is a whole number, found '08'"),
        ("input_dim: [1 2]", "net:1:15: expected ',' or ']', found '2'"),
        ("input_dim: [1", "net:1:14: expected ',' or ']', found the end of the file"),
        ("debug_info: 2", "net:1:13: 'debug_info' is true or false, found '2'"),
        ("debug_info: yes", "net:1:13: 'debug_info' is true or false, found 'yes'"),
        (
            "state { phase: TEXT }",
            "net:1:16: 'phase' is one of TRAIN, TEST; found 'TEXT'; did you mean 'TEST'?",
        ),
        ("state { phase: 2 }", "net:1:16: 'phase' has no value 2; it is one of TRAIN, TEST"),
        ("layer { clip_param { min: 1 } }", "net:1:9: ClipParameter needs 'max'"),
        ("layer { clip_param { min: 010 } }", "net:1:27: expected a number, found '010'"),
        ("layer { clip_param { min: 01.5 } }", "net:1:27: expected a number, found '01.5'"),
        ("layer { clip_param { min: 0x1 } }", "net:1:27: expected a number, found '0x1'"),
        ("name:", "net:1:6: expected a string in quotes, found the end of the file"),
        ("\x00", "net:1:1: unexpected character '\\x00'"),
    ],
)
def test_an_error_names_line_and_column(text: str, error: str) -> None:
    with pytest.raises(CaffeError) as raised:
        net(text)
    assert str(raised.value) == error


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [
        ("loss_param { ignore_label", -(2**31), 2**31 - 1),
        ("accuracy_param { top_k", 0, 2**32 - 1),
        ("reshape_param { shape { dim", -(2**63), 2**63 - 1),
    ],
)
def test_a_whole_number_has_the_range_of_its_field(field: str, low: int, high: int) -> None:
    end = " }" * field.count("{")
    for value in (low, high):
        assert f": {value}\n" in layer(f"{field}: {value}{end}")
    for value in (low - 1, high + 1):
        with pytest.raises(CaffeError, match=f"is from {low} to {high}, found '{value}'"):
            layer(f"{field}: {value}{end}")


def test_a_byte_that_is_not_utf8_may_stand_in_a_comment_only(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_bytes(b"# \xe9\nname: 'a'")
    assert read_net(path).name == "a"
    path.write_bytes(b"layer { eval_detection_param { a: [ # \xe9\n1] } }")
    assert len(read_net(path).layer) == 1
    path.write_bytes(b"name: '\xe9'")
    with pytest.raises(CaffeError, match=r"net\.prototxt:1:7: the string is not UTF-8"):
        read_net(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CaffeError, match=r"cannot read .*/none: No such file or directory"):
        read_net(tmp_path / "none")
    with pytest.raises(CaffeError, match=r"cannot read .*: Is a directory"):
        read_net(tmp_path)


def test_a_file_without_end_is_not_read_to_its_end() -> None:
    with pytest.raises(CaffeError, match="/dev/zero is longer than 268435456 bytes"):
        read_net("/dev/zero")


def test_more_messages_than_any_net_has_are_refused() -> None:
    with pytest.raises(CaffeError, match="net:1:1400006: more than 200000 messages in one file"):
        net("layer{}" * 200_001)


@pytest.mark.parametrize(
    "text",
    ["#\n" * 1_000_000, "name: '" + "\\n" * 1_000_000 + "'", "input_dim: 1 " * 100_000],
    ids=["comments", "escapes", "numbers"],
)
def test_a_long_text_takes_memory_in_proportion(text: str) -> None:
    program = (
        "import resource, sys\n"
        "from sirtaki_caffe.proto.schema import NetParameter\n"
        "from sirtaki_caffe.proto.text import parse\n"
        "text = sys.stdin.read()\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "parse(text, NetParameter, 'text')\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=text, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) << 10 < 20 * len(text)


def test_unknown_fields_of_detection_layers_are_kept_as_they_are() -> None:
    text = """layer {
  name: "data"
  type: "EvalDetection"
  eval_detection_param {
    batch_sampler {  max_sample: 1 # the image
      sampler < min_scale: -0.3; > list: [1, "a", {b: c}] }
    label: 'a' "b"
  }
}
"""
    shown = text_of(parse(text, NetParameter, "net"))
    assert [line.strip() for line in shown.splitlines()] == [
        line.strip() for line in text.splitlines()
    ]
    assert text_of(parse(shown, NetParameter, "net")) == shown


@pytest.mark.parametrize(
    ("inside", "error"),
    [
        ("a", "1:33: expected ':' or '{', found '}'"),
        ("a { b { c {}", "1:45: expected the name of a field or '}', found the end of the file"),
        ("a: ", "1:35: expected a value, found '}'"),
        ("a: [1 2]", "1:37: expected ',' or ']', found '2'"),
        ("a { 1: 2 }", "1:35: expected the name of a field or '}', found '1'"),
        ("a {" * 40, "1:129: more than 32 messages in one another"),
        ("a: '" + "b" * 65536 + "'", "1:31: more than 65536 characters of unknown fields"),
    ],
)
def test_what_is_kept_must_be_text_of_fields(inside: str, error: str) -> None:
    with pytest.raises(CaffeError) as raised:
        net(f"layer {{ eval_detection_param {{{inside} }}")
    assert str(raised.value) == f"net:{error}"


SOLVER = "net: 'n' base_lr: 0.1 snapshot_prefix: 's' "


def test_a_solver_without_prefix_takes_the_name_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "lenet_solver.prototxt"
    path.write_text("net: 'n'")
    assert read_solver(path).snapshot_prefix == str(tmp_path / "lenet_solver")
    path.write_text(f"snapshot_prefix: '{tmp_path}'")
    assert read_solver(path).snapshot_prefix == str(tmp_path / "lenet_solver")
    path.write_text("snapshot_prefix: 'a/b'")
    assert read_solver(path).snapshot_prefix == "a/b"


def test_an_ordinary_solver_has_one_phase(tmp_path: Path) -> None:
    path = tmp_path / "solver"
    path.write_text(SOLVER)
    assert read_phases(path) == [(parse(SOLVER, SolverParameter, ""), None)]


def test_the_phases_of_a_file_have_a_batch_size_each(tmp_path: Path) -> None:
    path = tmp_path / "solver"
    path.write_text(
        f"# two\nparams_pair {{ solver_params {{ {SOLVER} solver_type: ADAM }} batch_size: 3 }}\n"
        f"params_pair {{ solver_params {{ {SOLVER} }} }}"
    )
    assert read_phases(path) == [
        (parse(SOLVER + "type: 'Adam'", SolverParameter, ""), 3),
        (parse(SOLVER, SolverParameter, ""), None),
    ]


def test_an_error_of_an_upgrade_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "solver"
    path.write_text("type: 'SGD' solver_type: SGD")
    with pytest.raises(CaffeError, match=r".*/solver: a solver has type or, formerly"):
        read_phases(path)
