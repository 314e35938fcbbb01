"""The tf.data service: a job that prepares data, and one that trains with it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

from horovod.tensorflow.data.compute_service import TfDataServiceConfig
from sirtaki.tensorflow.data.registry import ComputeClient, ComputeService
from tests.pages import DOCS, programs
from tests.single.launching import HOROVODRUN, Job

LIMIT = 300
KEY = b"k" * 32
HOST = "127.0.0.1"

pytestmark = pytest.mark.timeout(2 * LIMIT)


# ---- Two jobs ----

BEGIN = """
import json, sys
import tensorflow as tf
import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service
hvd.init()
config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True, timeout=150)
data = tf.data.Dataset.range(20).map(lambda x: x * x)
seen = {}
"""
END = """
hvd.barrier()
if hvd.rank() == 0:
    config.compute_client(verbose=2).shutdown()
print("seen", json.dumps(seen), flush=True)
hvd.shutdown()
"""

SENT = """
def take(data, count=-1, **more):
    data = data.send_to_data_service(config, hvd.rank(), **more)
    return [int(x) for x in data.take(count)]

seen["own"] = take(data)
seen["shared"] = take(data, reuse_dataset=True)
turns = tf.data.Dataset.range(1000).repeat()
more = dict(reuse_dataset=True, round_robin=True, processing_mode="parallel_epochs")
seen["in turn"] = take(turns, 3, size=hvd.size(), **more)
"""

DISPATCHED = """
with tf_data_service(config, hvd.rank()) as service:
    own = data.apply(tf.data.experimental.service.distribute("distributed_epoch", service))
    seen["own"] = [int(x) for x in own]
    seen["service"] = service
"""


def run_both(job: Job, folder: Path, script: str, workers: int, *options: str) -> str:
    """Run a compute job, and a script on two ranks, to their ends; return the script's output."""
    config = folder / "config.json"
    module = ("-m", "horovod.tensorflow.data.compute_worker", str(config), *options)
    compute = job.start("-np", str(workers), sys.executable, *module)
    (folder / "train.py").write_text(script)
    training = subprocess.run(
        [*HOROVODRUN, "-np", "2", sys.executable, str(folder / "train.py"), str(config)],
        env=job.environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    if training.returncode:
        compute.terminate()
    output = compute.communicate(timeout=LIMIT)[0]
    assert training.returncode == 0, training.stdout + training.stderr + output
    assert compute.returncode == 0, output
    assert not config.exists(), "a later job would find a service that has ended"
    return training.stdout


def train(job: Job, folder: Path, body: str, workers: int, *options: str) -> list[dict[str, Any]]:
    """Return what each rank of the training has seen."""
    output = run_both(job, folder, BEGIN + body + END, workers, *options)
    found = dict(re.findall(r"^\[(\d)\]<stdout>:seen (.*)$", output, re.MULTILINE))
    return [json.loads(found[rank]) for rank in "01"]


SQUARES = [x * x for x in range(20)]


@pytest.mark.nightly
def test_ranks_take_what_the_compute_job_prepares(job: Job, tmp_path: Path) -> None:
    seen = train(job, tmp_path, SENT, 1)
    assert [each["own"] for each in seen] == [SQUARES, SQUARES]
    assert sorted(seen[0]["shared"] + seen[1]["shared"]) == SQUARES
    assert [each["in turn"] for each in seen] == [[0, 2, 4], [1, 3, 5]]


@pytest.mark.nightly
def test_each_rank_of_the_training_may_run_a_dispatcher(job: Job, tmp_path: Path) -> None:
    options = ("--dispatchers", "2", "--dispatcher-side", "training", "--timeout", "150")
    seen = train(job, tmp_path, DISPATCHED, 2, *options)
    assert [sorted(each["own"]) for each in seen] == [SQUARES, SQUARES]
    assert seen[0]["service"] != seen[1]["service"]


@pytest.mark.slow
def test_the_code_of_the_page_runs(job: Job, tmp_path: Path) -> None:
    [code] = programs(DOCS / "howto/tf-data-service.md")
    code = code.replace("    ...", "    print('rows', len(batch))")
    output = run_both(job, tmp_path, code, 1)
    rows = [int(each) for each in re.findall(r":rows (\d+)$", output, re.MULTILINE)]
    assert sum(rows) == 1000
    assert max(rows) == 32


# ---- Where addresses are told ----


@pytest.fixture
def service() -> Iterator[ComputeService]:
    service = ComputeService(HOST, KEY)
    yield service
    service.close()


def client(service: ComputeService, key: bytes = KEY, timeout: float = 30) -> ComputeClient:
    return ComputeClient([service.address], key, timeout)


def test_who_waits_for_a_dispatcher_is_told_where_it_is(service: ComputeService) -> None:
    told: list[str] = []
    waiting = threading.Thread(target=lambda: told.append(client(service).wait_for_dispatcher(3)))
    waiting.start()
    client(service).register_dispatcher(3, "there:1")
    waiting.join()
    assert told == ["there:1"]


def test_workers_are_there_when_all_are(service: ComputeService) -> None:
    impatient = client(service, timeout=0.2)
    client(service).register_worker(1, 0)
    with pytest.raises(TimeoutError, match=r"worker 1 of dispatcher 1 .* within 0\.2 s"):
        impatient.wait_for_workers(1, 2)
    client(service).register_worker(1, 1)
    impatient.wait_for_workers(1, 2)


def test_a_dispatcher_that_does_not_come_is_named(service: ComputeService) -> None:
    with pytest.raises(TimeoutError, match=rf"dispatcher 0 .* at {HOST}:\d+ within 0\.2 s"):
        client(service, timeout=0.2).wait_for_dispatcher(0)


def test_a_second_training_job_is_refused(service: ComputeService) -> None:
    client(service).register_dispatcher(0, "here:1")
    with pytest.raises(RuntimeError, match=r"dispatcher 0 .* already is at here:1"):
        client(service).register_dispatcher(0, "there:1")


def test_a_wrong_key_is_refused_and_others_are_still_served(
    service: ComputeService, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(PermissionError, match=rf"{HOST}:\d+ and this process have different keys"):
        client(service, key=b"x" * 32).register_dispatcher(0, "there:1")
    client(service).register_dispatcher(0, "here:1")
    assert f"refused {HOST}:" in caplog.text


def test_a_service_that_does_not_know_the_key_is_not_believed() -> None:
    with socket.create_server((HOST, 0)) as liar:

        def welcome_anybody() -> None:
            with Connection(liar.accept()[0].detach()) as connection:
                connection.send_bytes(b"#CHALLENGE#" + b"c" * 20)
                connection.recv_bytes()
                connection.send_bytes(b"#WELCOME#")
                with pytest.raises(AuthenticationError):
                    answer_challenge(connection, b"guessed")

        lying = threading.Thread(target=welcome_anybody)
        lying.start()
        with pytest.raises(PermissionError, match="different keys"):
            ComputeClient([liar.getsockname()], KEY, 30).wait_for_dispatcher(0)
        lying.join()


def test_strangers_who_are_silent_keep_nobody_waiting(service: ComputeService) -> None:
    """One after the other they would, for longer than a client waits for a challenge."""
    with contextlib.ExitStack() as strangers:
        for _ in range(5):
            strangers.enter_context(socket.create_connection(service.address))
        client(service).register_dispatcher(0, "here:1")


def test_a_service_that_is_gone_is_named(service: ComputeService) -> None:
    other = ComputeService(HOST, KEY)
    other.close()
    both = [other.address, service.address]
    ComputeClient(both, KEY, 30).register_worker(0, 0)
    with pytest.raises(ConnectionError, match=rf"{HOST}:{other.address[1]}: .*still running"):
        ComputeClient(both[:1], KEY, 30).register_worker(0, 0)


SERVICE = f"""
from sirtaki.tensorflow.data.registry import ComputeService
print(ComputeService({HOST!r}, {KEY!r}).address[1], flush=True)
input()
"""


def test_who_waits_learns_that_the_service_has_died() -> None:
    command = [sys.executable, "-c", SERVICE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        address = (HOST, int(process.stdout.readline()))
        threading.Timer(1, process.kill).start()
        with pytest.raises(ConnectionError, match="ended while this process waited for shutdown"):
            ComputeClient([address], KEY, 30).wait_for_shutdown()


def test_a_shutdown_ends_the_waiting(service: ComputeService) -> None:
    client(service).shutdown()
    client(service).wait_for_shutdown()


# ---- The configuration ----

CONFIG = TfDataServiceConfig(2, 3, "compute", [("10.0.0.1", 7), ("::1", 8)], b"\0\xffkey", 5)


def test_a_configuration_survives_a_dictionary_and_a_file(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    CONFIG.write(file)
    assert TfDataServiceConfig.read(file) == CONFIG
    assert TfDataServiceConfig.from_dict(json.loads(json.dumps(CONFIG.to_dict()))) == CONFIG


def test_the_file_holds_a_key_that_only_the_owner_reads(tmp_path: Path) -> None:
    CONFIG.write(tmp_path / "config.json")
    [file] = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_not_waited_for_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        TfDataServiceConfig.read(tmp_path / "config.json")


def test_a_file_that_never_comes_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    with pytest.raises(TimeoutError, match=rf"{file} did not appear within 0\.3 s"):
        TfDataServiceConfig.read(file, wait_for_file_creation=True, timeout=0.3)


def test_a_file_that_is_written_meanwhile_is_read(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    threading.Timer(0.3, CONFIG.write, [file]).start()
    assert TfDataServiceConfig.read(file, wait_for_file_creation=True) == CONFIG


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"dispatchers": 0}, "dispatchers must be positive, not 0"),
        ({"workers_per_dispatcher": -1}, "workers_per_dispatcher must be positive, not -1"),
        ({"timeout": 0}, "timeout must be positive, not 0"),
        ({"dispatcher_side": "both"}, "must be 'compute' or 'training', not 'both'"),
    ],
)
def test_a_wrong_configuration_is_refused(change: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        replace(CONFIG, **change)  # type: ignore[arg-type]


# ---- What cannot be sent ----


def test_datasets_are_not_sent_to_dispatchers_of_the_training_job() -> None:
    config = replace(CONFIG, dispatcher_side="training")
    with pytest.raises(RuntimeError, match="use tf_data_service"):
        tf.data.Dataset.range(1).send_to_data_service(config, 0)


@pytest.mark.parametrize("more", [{}, {"reuse_dataset": True}, {"size": 2}])
def test_taking_turns_needs_a_shared_dataset_and_the_number_of_ranks(
    more: dict[str, object],
) -> None:
    with pytest.raises(ValueError, match="round_robin=True needs reuse_dataset=True, and size"):
        tf.data.Dataset.range(1).send_to_data_service(CONFIG, 0, round_robin=True, **more)
