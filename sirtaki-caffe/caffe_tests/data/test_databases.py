"""Databases are read as the library reads them, and damaged ones are refused."""

from __future__ import annotations

import random
from contextlib import closing, suppress
from pathlib import Path

import lmdb
import pytest

from caffe_tests.data.records import BACKENDS, needs_leveldb
from sirtaki_caffe.data.stores.databases import InOrder, Shuffled, open_database, write_database
from sirtaki_caffe.errors import CaffeError


def write_lmdb(path: Path, records: dict[bytes, bytes]) -> Path:
    with lmdb.open(str(path), map_size=1 << 30) as env, env.begin(write=True) as transaction:
        for key, value in records.items():
            transaction.put(key, value)
    return path


def drawn(count: int) -> dict[bytes, bytes]:
    """Keys and values of many lengths: some lie among the keys, some in pages of their own."""
    source = random.Random(0)
    return {
        source.randbytes(source.randint(1, 400)): source.randbytes(source.choice((0, 9, 900, 9000)))
        for _ in range(count)
    }


@pytest.mark.parametrize("count", [1, 30, 5000])
def test_an_lmdb_is_read_whole_in_the_order_of_its_keys(tmp_path: Path, count: int) -> None:
    records = drawn(count)
    path = write_lmdb(tmp_path / "db", records)
    with closing(open_database("lmdb", str(path))) as database:
        assert database.count() == len(records)
        reader = InOrder(database, "db")
        assert [reader.read(number) for number in range(len(records))] == sorted(records.items())
        index = database.index()
        assert len(index) == len(records)
        for place in (0, len(records) // 2, len(records) - 1):
            assert index.record(place) == sorted(records.items())[place]


def test_an_lmdb_is_read_as_the_last_transaction_left_it(tmp_path: Path) -> None:
    path = write_lmdb(tmp_path / "db", {b"a": b"1", b"b": b"2"})
    write_lmdb(path, {b"a": b"3"})
    with lmdb.open(str(path)) as env, env.begin(write=True) as transaction:
        transaction.delete(b"b")
    with closing(open_database("lmdb", str(path))) as database:
        reader = InOrder(database, "db")
        assert [reader.read(n) for n in range(2)] == [(b"a", b"3")] * 2


def test_an_lmdb_may_be_one_file(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "a.lmdb"), subdir=False) as env, env.begin(write=True) as writing:
        writing.put(b"a", b"1")
    with closing(open_database("lmdb", str(tmp_path / "a.lmdb"))) as database:
        assert InOrder(database, "db").read(0) == (b"a", b"1")


def test_an_lmdb_with_databases_inside_is_refused(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "db"), max_dbs=1) as env:
        env.open_db(b"inside")
    with pytest.raises(CaffeError, match="databases inside"):
        read_all(tmp_path / "db")


def read_all(path: Path) -> None:
    with closing(open_database("lmdb", str(path))) as database:
        for reader in (InOrder(database, "db"), Shuffled(database, "db", 1)):
            for number in range(100):
                reader.read(number)


def test_a_damaged_lmdb_is_read_or_refused_but_ends_nothing(tmp_path: Path) -> None:
    path = write_lmdb(tmp_path / "db", drawn(60))
    whole = (path / "data.mdb").read_bytes()
    source = random.Random(1)
    refused = 0
    for _ in range(300):
        content = bytearray(whole)
        for _ in range(source.choice((1, 3, 30))):
            page = 4096 * source.randrange(len(content) // 4096)
            content[page + source.randrange(64)] = source.choice((0, 255, source.randrange(256)))
        (path / "data.mdb").write_bytes(content)
        try:
            read_all(path)
        except CaffeError:
            refused += 1
    assert refused > 50


def test_an_lmdb_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = write_lmdb(tmp_path / "db", drawn(60))
    with closing(open_database("lmdb", str(path))) as database:
        reader = InOrder(database, "db")
        (path / "data.mdb").open("r+b").truncate(8192)
        with pytest.raises(CaffeError, match="damaged"):
            list(map(reader.read, range(60)))


@needs_leveldb
@pytest.mark.parametrize(
    ("written", "asked", "said"),
    [
        ("lmdb", "leveldb", "of the kind LMDB, not LevelDB: give backend: LMDB, or"),
        ("leveldb", "lmdb", "of the kind LevelDB, not LMDB: give backend: LEVELDB, or"),
    ],
)
def test_a_database_of_the_other_kind_is_recognised(
    tmp_path: Path, written: str, asked: str, said: str
) -> None:
    with write_database(written, tmp_path / "db") as database:
        database.put(b"a", b"1")
    with pytest.raises(CaffeError, match=said):
        open_database(asked, str(tmp_path / "db"))


@needs_leveldb
def test_a_damaged_leveldb_is_refused(tmp_path: Path) -> None:
    with write_database("leveldb", tmp_path / "db") as writer:
        for number in range(50):
            writer.put(b"%05d" % number, bytes(5000))
    source = random.Random(2)
    for file in sorted((tmp_path / "db").iterdir()):
        whole = file.read_bytes()
        for _ in range(10 if whole else 0):
            content = bytearray(whole)
            content[source.randrange(len(content))] ^= 255
            file.write_bytes(content)
            with (
                suppress(CaffeError),
                closing(open_database("leveldb", str(tmp_path / "db"))) as db,
            ):
                reader = InOrder(db, "db")
                assert [reader.read(n)[1] for n in range(50)] == [bytes(5000)] * 50
        file.write_bytes(whole)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_not_written_to_the_end_is_not_there(tmp_path: Path, backend: str) -> None:
    with suppress(KeyboardInterrupt), write_database(backend, tmp_path / "db") as database:
        database.put(b"a", b"1")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
