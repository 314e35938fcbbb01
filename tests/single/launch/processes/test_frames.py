"""What launcher and agent say to each other, and what is not taken for it."""

from __future__ import annotations

import signal
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirtaki.launch.processes.events import HostJob, Process
from sirtaki.launch.processes.frames import (
    FrameError,
    FrameReader,
    GreetingReader,
    Kind,
    greeting,
    pack,
    pack_answer,
    pack_job,
    pack_json,
    pack_output,
    pack_signal,
    pack_start,
    unpack_answer,
    unpack_job,
    unpack_json,
    unpack_output,
    unpack_signal,
    unpack_start,
)

outputs = st.builds(
    pack_output, st.integers(0, 2**32 - 1), st.sampled_from(["stdout", "stderr"]), st.binary()
)
frames = st.lists(
    st.sampled_from([pack(Kind.PING), pack(Kind.TERMINATE), pack_json(Kind.EVENT, {"a": [1]})])
    | outputs,
    max_size=6,
)
cuts = st.lists(st.integers(1, 50), min_size=1)


def pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    """The data cut into pieces of the sizes, again and again."""
    cut = []
    while data:
        size = sizes[len(cut) % len(sizes)]
        cut.append(data[:size])
        data = data[size:]
    return cut


@given(frames, cuts)
def test_frames_are_read_however_they_are_cut(sent: list[bytes], sizes: list[int]) -> None:
    reader = FrameReader()
    found = [frame for piece in pieces(b"".join(sent), sizes) for frame in reader.feed(piece)]
    assert [pack(kind, payload) for kind, payload in found] == sent


@given(st.integers(0, 2**32 - 1), st.binary())
def test_an_answer_names_the_question(number: int, answer: bytes) -> None:
    ((kind, payload),) = FrameReader().feed(pack_answer(number, answer))
    assert (kind, unpack_answer(payload)) == (Kind.ANSWER, (number, answer))
    with pytest.raises(FrameError, match="an answer of 3 bytes has no number"):
        unpack_answer(payload[:3])


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    reader = FrameReader()
    try:
        found = reader.feed(data)
    except FrameError:
        return
    assert data.startswith(b"".join(pack(kind, payload) for kind, payload in found))


@pytest.mark.parametrize(
    "header", [(0, 0), (99, 0), (Kind.PING, 1), (Kind.OUTPUT, 2**31), (Kind.JOB, 2**32 - 1)]
)
def test_a_frame_of_no_kind_or_too_long_is_refused_before_it_is_there(
    header: tuple[int, int],
) -> None:
    with pytest.raises(FrameError):
        FrameReader().feed(struct.pack("!BI", *header))


def test_a_frame_that_nobody_would_take_is_not_written() -> None:
    with pytest.raises(FrameError, match="OUTPUT of"):
        pack_output(0, "stdout", bytes(2 << 20))


@pytest.mark.parametrize("payload", [b"", b"\0" * 4, b"\0\0\0\1\2", b"\0\0\0\1\xffx"])
def test_output_without_a_rank_or_of_no_stream_is_refused(payload: bytes) -> None:
    with pytest.raises(FrameError):
        unpack_output(payload)


@given(st.integers(0, 2**32 - 1), st.sampled_from(["stdout", "stderr"]), st.binary())
def test_output_is_read_as_it_was_written(rank: int, stream: str, data: bytes) -> None:
    ((kind, payload),) = FrameReader().feed(pack_output(rank, stream, data))
    assert (kind, unpack_output(payload)) == (Kind.OUTPUT, (rank, stream, data))


@pytest.mark.parametrize("payload", [b"", b"[]", b"{", b"\xff", b"1"])
def test_json_that_is_no_object_is_refused(payload: bytes) -> None:
    with pytest.raises(FrameError):
        unpack_json(payload)


texts = st.dictionaries(st.text(), st.text(), max_size=3)


@given(texts, st.binary(max_size=40), st.none() | st.integers(0, 99))
def test_a_job_is_read_as_it_was_written(
    variables: dict[str, str], secret: bytes, cpus: int | None
) -> None:
    job = HostJob(["a", "b"], variables, "/", 2, secret, 0.5, "core", cpus)
    ((kind, payload),) = FrameReader().feed(pack_job(job))
    assert (kind, unpack_job(payload)) == (Kind.JOB, job)


@given(st.lists(st.builds(Process, st.integers(0), st.integers(0), texts, texts), max_size=3))
def test_processes_are_read_as_they_were_written(processes: list[Process]) -> None:
    ((kind, payload),) = FrameReader().feed(pack_start(processes))
    assert (kind, unpack_start(payload)) == (Kind.START, processes)


@pytest.mark.parametrize("payload", [b"{}", b"[]", b'{"secret": "x"}', b'{"secret": ""}'])
def test_a_job_that_lacks_something_is_refused(payload: bytes) -> None:
    with pytest.raises(FrameError):
        unpack_job(payload)


@pytest.mark.parametrize("payload", [b"{}", b'{"processes": 1}', b'{"processes": [{"id": 1}]}'])
def test_processes_that_lack_something_are_refused(payload: bytes) -> None:
    with pytest.raises(FrameError):
        unpack_start(payload)


def test_a_signal_is_for_one_process() -> None:
    ((kind, payload),) = FrameReader().feed(pack_signal(70000, signal.SIGUSR1))
    assert (kind, unpack_signal(payload)) == (Kind.SIGNAL, (70000, signal.SIGUSR1))


@pytest.mark.parametrize("payload", [b"", b"\x0a", struct.pack("!BI", signal.SIGSTOP, 1)])
def test_a_signal_that_no_process_is_sent_is_refused(payload: bytes) -> None:
    with pytest.raises(FrameError):
        unpack_signal(payload)


@given(st.binary(max_size=100).filter(lambda noise: b"sirtaki-agent " not in noise), cuts)
def test_the_greeting_is_found_behind_any_noise(noise: bytes, sizes: list[int]) -> None:
    reader = GreetingReader()
    versions = []
    rest = b""
    for piece in pieces(noise + greeting("1.2.3") + pack(Kind.PING), sizes):
        if versions:
            rest += piece
        elif (version := reader.feed(piece)) is not None:
            versions.append(version)
            rest += reader.rest
    assert versions == ["1.2.3"]
    assert rest == pack(Kind.PING)


def test_noise_is_kept_line_by_line() -> None:
    reader = GreetingReader()
    assert reader.feed(b"Welcome!\r\n\n  \nno end" + greeting("1")) == "1"
    assert reader.noise == ["Welcome!", "no end"]


@pytest.mark.parametrize("piece", [b"x" * 4096, b"x\n" * 2048])
def test_a_program_that_only_makes_noise_is_given_up(piece: bytes) -> None:
    reader = GreetingReader()
    for _ in range((1 << 20) // len(piece)):
        assert reader.feed(piece) is None
    with pytest.raises(FrameError, match="no agent"):
        reader.feed(piece)
