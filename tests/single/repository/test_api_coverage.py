"""Every public name of Horovod is there, with its parameters, a test and a row in the docs."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.flags import read_flags
from sirtaki.launch.flags.parser import make_parser
from sirtaki.launch.flags.settings import make_settings
from tests import needs
from tests.single.repository.api_names import (
    DIFFERENCES,
    GROUPS,
    MISSING,
    MORE_PARAMETERS,
    OTHER_DEFAULTS,
    PAGE,
    Group,
    name_of,
    page,
)
from tests.single.repository.cli_flags import FLAGS, SWITCH_KEYS, Flag
from tests.single.repository.elastic_names import GROUPS as ELASTIC

needs.package("torch")

ROOT = Path(__file__).resolve().parents[3]
NAMES = [(group, line) for group in [*GROUPS, *ELASTIC] for line in group.lines()]
IDS = [f"{group.horovod}.{name_of(line)}" for group, line in NAMES]


def resolve(module: str, name: str) -> Any:
    return reduce(getattr, name.split("."), importlib.import_module(module))


def expected_parameters(line: str, module: str) -> list[tuple[str, Any]]:
    """The parameters in a line: (name, default); stars are part of the name."""
    function = ast.parse(f"def f({line.split('(', 1)[1]}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    arguments, scope = function.args, vars(importlib.import_module(module))
    missing = [inspect.Parameter.empty] * (len(arguments.args) - len(arguments.defaults))
    defaults = [eval(ast.unparse(default), dict(scope)) for default in arguments.defaults]
    found = list(zip([a.arg for a in arguments.args], missing + defaults, strict=True))
    if arguments.vararg:
        found.append(("*" + arguments.vararg.arg, inspect.Parameter.empty))
    if arguments.kwarg:
        found.append(("**" + arguments.kwarg.arg, inspect.Parameter.empty))
    return found


def actual_parameters(function: Any, *, bound: bool) -> list[tuple[str, Any]]:
    # Python 3.10 describes a class by the `__new__` of its base.
    begins = dict(inspect.getmembers(function, inspect.isfunction)).get("__init__")
    if isinstance(function, type) and begins:
        function, bound = begins, False
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parameters = list(inspect.signature(function).parameters.values())
    return [(stars.get(p.kind, "") + p.name, p.default) for p in parameters[not bound :]]


@pytest.mark.parametrize(("group", "line"), NAMES, ids=IDS)
def test_the_name_is_the_same_object_under_both_packages(group: Group, line: str) -> None:
    name = name_of(line)
    theirs = resolve(group.horovod, name)
    assert theirs == resolve(group.where, name)
    if not group.where.startswith("horovod"):
        ours = group.horovod.replace("horovod", "sirtaki", 1)
        # What is shared by all frameworks is in core here.
        ours = {"sirtaki": "sirtaki.launch.api"}.get(ours, ours)
        ours = group.where if ours.startswith("sirtaki.common") else ours
        assert theirs == resolve(ours, name)


@pytest.mark.parametrize(
    ("group", "line"),
    [pair for pair in NAMES if "(" in pair[1]],
    ids=[name for name, (_, line) in zip(IDS, NAMES, strict=True) if "(" in line],
)
def test_the_parameters_are_horovods_in_order_and_default(group: Group, line: str) -> None:
    name = name_of(line)
    target = resolve(group.horovod, name)
    owner = resolve(group.horovod, name.rpartition(".")[0]) if "." in name else None
    in_class = isinstance(owner, type) and not isinstance(
        inspect.getattr_static(owner, name.rpartition(".")[2]), staticmethod
    )
    actual = actual_parameters(target, bound=not in_class)
    expected = expected_parameters(line, group.horovod)
    more = actual[len(expected) :]
    assert [parameter for parameter, _ in more] == MORE_PARAMETERS.get(name, [])
    assert all(
        default is not inspect.Parameter.empty or parameter.startswith("*")
        for parameter, default in more
    )
    others = OTHER_DEFAULTS.get(name, {})
    expected = [(p, ast.literal_eval(others[p]) if p in others else d) for p, d in expected]
    assert actual[: len(expected)] == expected


@pytest.mark.parametrize(("group", "line"), [pair for pair in NAMES if re.match(r"\w+=", pair[1])])
def test_constants_have_horovods_values(group: Group, line: str) -> None:
    assert resolve(group.horovod, name_of(line)) == ast.literal_eval(line.split("=", 1)[1])


@pytest.mark.parametrize(("group", "line"), NAMES, ids=IDS)
def test_the_test_that_is_named_has_the_name(group: Group, line: str) -> None:
    name = name_of(line).rpartition(".")[2]
    assert re.search(rf"\b{re.escape(name)}\b", (ROOT / group.test).read_text())


def test_no_compression_keeps_the_tensor() -> None:
    import torch

    import sirtaki.torch as hvd

    tensor = torch.ones(2)
    compressed, ctx = hvd.Compression.none.compress(tensor)
    assert hvd.Compression.none.decompress(compressed, ctx) is tensor


def test_differences_are_told_of_names_that_exist_only() -> None:
    names = {name_of(line) for _, line in NAMES}
    assert set(DIFFERENCES) <= names
    assert set(MORE_PARAMETERS) | set(OTHER_DEFAULTS) <= set(DIFFERENCES)


@pytest.mark.parametrize("module", MISSING)
def test_what_is_said_to_be_missing_is_missing(module: str) -> None:
    with pytest.raises(ImportError):
        importlib.import_module(module)


def test_the_page_has_a_row_for_every_name() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.single.repository.api_names"


# ---- Flags ----


# These act in elastic jobs, which --min-np makes.
HOW_ELASTIC = (
    *("--max-np", "--max-num-proc", "--slots-per-host", "--elastic-timeout", "--reset-limit"),
    "--blacklist-cooldown-range",
)


def variables(arguments: list[str]) -> dict[str, str]:
    """What the workers get for these arguments. Raises LaunchError."""
    if any("mark-cycles" in argument for argument in arguments):
        arguments = ["--timeline-filename", "t.json", *arguments]  # of no use without a file
    if not {"-np", "--num-proc"} & set(arguments):
        arguments = ["-np", "2", *arguments]
    if set(arguments) & set(HOW_ELASTIC):
        arguments = ["--min-np", "1", *arguments]
    parsed = make_parser("horovodrun").parse_args([*arguments, "true"])
    return make_settings(read_flags(parsed, {}, pytest.fail), {}).variables


SPELLINGS = [(flag, spelling) for flag in FLAGS for spelling in flag.spellings.split()]


@pytest.mark.parametrize(("flag", "spelling"), SPELLINGS, ids=[s for _, s in SPELLINGS])
def test_a_flag_does_what_is_said(
    flag: Flag, spelling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("settings.yaml").write_text("logging:\n  level: INFO\n")
    Path("hosts").write_text("localhost slots=2\n")
    values = [flag.value] if flag.value.startswith("-") else flag.value.split()
    arguments = (
        [f"{spelling}={values[0]}"] if values and values[0][0] == "-" else [spelling, *values]
    )
    if flag.effect == "lsf":
        with pytest.raises(LaunchError, match="not supported"):
            variables(arguments)
        return
    given = variables(arguments)
    if "=" in flag.effect:
        name, _, value = flag.effect.partition("=")
        assert given[name] == value
    else:
        expected = {"HOROVOD_LOG_LEVEL": "INFO"} if spelling == "--config-file" else {}
        assert given == expected


KEYS = {flag.key: (flag.value, flag.effect) for flag in FLAGS if flag.key}
KEYS |= {key: ("true", effect) for key, effect in SWITCH_KEYS.items()}


@pytest.mark.parametrize("key", KEYS)
def test_a_key_of_the_file_is_like_the_flag(key: str, tmp_path: Path) -> None:
    section, name = key.split(".")
    text, effect = KEYS[key]
    path = tmp_path / "settings.yaml"
    file = "  filename: t.json\n" if name == "mark_cycles" else ""
    path.write_text(f"{section}:\n  {name}: {text}\n{file}")
    variable, _, value = effect.partition("=")
    assert variables(["--config-file", str(path)])[variable] == value
