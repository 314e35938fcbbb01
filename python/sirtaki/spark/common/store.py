"""Stores of an estimator's data, checkpoints and logs, on any pyarrow file system."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sirtaki.spark.common.parquet import files

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_DBFS = ("dbfs:/", "/dbfs/")
_KNOWN = ("file", "s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")


class Store:
    """A folder in a file system, with the names of an estimator's files.

    Every rank opens the file system itself, so a store can be pickled.

    Args:
        prefix_path: A path or a URI that `pyarrow.fs.FileSystem.from_uri` supports, such as
            `s3://bucket/folder`.
        train_path: The folder of training data; default: `intermediate_train_data`.
        val_path: The folder of validation data; default: `intermediate_val_data`.
        test_path: The folder of test data; default: `intermediate_test_data`.
        runs_path: The folder with a folder for each run; default: `runs`.
        save_runs: Whether to write checkpoints and logs.
        storage_options: Arguments of fsspec's file system for the URI's scheme, which then replaces
            pyarrow's own.
        checkpoint_filename: The name of a run's checkpoint; default: `checkpoint`.
        filesystem: A pyarrow file system in place of the URI's; the prefix is a path in it.
    """

    _checkpoint = "checkpoint"

    def __init__(
        self,
        prefix_path: str | os.PathLike[str],
        train_path: str | None = None,
        val_path: str | None = None,
        test_path: str | None = None,
        runs_path: str | None = None,
        save_runs: bool = True,
        storage_options: dict[str, Any] | None = None,
        checkpoint_filename: str | None = None,
        filesystem: FileSystem | None = None,
    ) -> None:
        self.fs, self.prefix_path = _opened(os.fspath(prefix_path), storage_options, filesystem)
        self._train_path = self._own(train_path) or self._in("intermediate_train_data")
        self._val_path = self._own(val_path) or self._in("intermediate_val_data")
        self._test_path = self._own(test_path) or self._in("intermediate_test_data")
        self._runs_path = self._own(runs_path) or self._in("runs")
        self._save_runs = save_runs
        self._checkpoint_filename = checkpoint_filename or self._checkpoint

    @staticmethod
    def create(prefix_path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> Store:
        """Return the store for a path or URI.

        Args:
            prefix_path: See `Store`.
            *args: Arguments of the class that the path selects.
            **kwargs: The same.

        Raises:
            ValueError: pyarrow has no file system for the URI.
        """
        text = os.fspath(prefix_path)
        if text.startswith("hdfs://"):
            return HDFSStore(text, *args, **kwargs)
        if "DATABRICKS_RUNTIME_VERSION" in os.environ and text.startswith(_DBFS):
            return DBFSLocalStore(text, *args, **kwargs)
        return FilesystemStore(text, *args, **kwargs)

    def _own(self, path: str | None) -> str | None:
        """Return a given path in the form of the file system."""
        return None if path is None else path.partition("://")[2] if "://" in path else path

    def _in(self, name: str) -> str:
        return posixpath.join(self.prefix_path, name)

    def get_train_data_path(self, idx: int | None = None) -> str:
        """Return the path of training data; `idx`: of the data set with that number."""
        return _numbered(self._train_path, idx)

    def get_val_data_path(self, idx: int | None = None) -> str:
        """Return the path of validation data."""
        return _numbered(self._val_path, idx)

    def get_test_data_path(self, idx: int | None = None) -> str:
        """Return the path of test data."""
        return _numbered(self._test_path, idx)

    def get_runs_path(self) -> str:
        """Return the folder of all runs."""
        return self._runs_path

    def get_run_path(self, run_id: str) -> str:
        """Return the folder of a run."""
        return posixpath.join(self._runs_path, run_id)

    def get_checkpoint_path(self, run_id: str) -> str:
        """Return the file of a run's last checkpoint."""
        return posixpath.join(self.get_run_path(run_id), self._checkpoint_filename)

    def get_checkpoints(self, run_id: str, suffix: str = ".ckpt") -> list[str]:
        """Return the files of a run with this suffix, sorted by name."""
        from pyarrow.fs import FileSelector

        selector = FileSelector(self.get_run_path(run_id), allow_not_found=True, recursive=True)
        found = self.fs.get_file_info(selector)
        return sorted(each.path for each in found if each.path.endswith(suffix))

    def get_logs_path(self, run_id: str) -> str:
        """Return the folder of a run's logs."""
        return posixpath.join(self.get_run_path(run_id), "logs")

    def get_checkpoint_filename(self) -> str:
        """Return the name of the file of a checkpoint."""
        return self._checkpoint_filename

    def saving_runs(self) -> bool:
        """Return whether checkpoints and logs are written."""
        return self._save_runs

    def exists(self, path: str) -> bool:
        """Return whether a file or folder exists."""
        from pyarrow.fs import FileType

        return bool(self.fs.get_file_info(path).type != FileType.NotFound)

    def read(self, path: str) -> bytes:
        """Return the bytes of a file."""
        with self.fs.open_input_stream(path) as stream:
            return bytes(stream.read())

    def write(self, path: str, data: bytes) -> None:
        """Write a file atomically, and create its folder."""
        self.fs.create_dir(posixpath.dirname(path), recursive=True)
        aside = f"{path}.new"
        with self.fs.open_output_stream(aside) as stream:
            stream.write(data)
        self.fs.move(aside, path)

    def write_text(self, path: str, text: str) -> None:
        """Write text; see `write`."""
        self.write(path, text.encode())

    def delete(self, path: str) -> None:
        """Delete a folder and its contents, if it exists."""
        if self.exists(path):
            self.fs.delete_dir(path)

    def is_parquet_dataset(self, path: str) -> bool:
        """Return whether a folder contains Parquet files."""
        return bool(files(self.fs, path))

    def get_parquet_dataset(self, path: str) -> Any:
        """Return a folder of Parquet files as a `pyarrow.dataset.Dataset`."""
        from pyarrow import dataset

        return dataset.dataset(path, filesystem=self.fs, format="parquet")

    def to_remote(self, run_id: str, dataset_idx: int | None = None) -> RemotePaths:
        """Return the paths of one run."""
        return RemotePaths(
            self.get_train_data_path(dataset_idx),
            self.get_val_data_path(dataset_idx),
            self.get_run_path(run_id),
            self.get_checkpoint_path(run_id),
            self.get_logs_path(run_id),
            self._save_runs,
        )


@dataclass(frozen=True)
class RemotePaths:
    """The paths of one run, as seen by ranks."""

    train_data_path: str
    val_data_path: str
    run_path: str
    checkpoint_path: str
    logs_path: str
    saving_runs: bool


class FilesystemStore(Store):
    """A store on any file system of pyarrow, or of fsspec with `storage_options`."""


class LocalStore(FilesystemStore):
    """A store in a folder with the same path on the driver and all executors."""


class HDFSStore(Store):
    """A store on HDFS, with `pyarrow.fs.HadoopFileSystem`, which needs libhdfs and its CLASSPATH.

    Args:
        prefix_path: A URI such as `hdfs://namenode:8020/folder`, or a path with `host` and `port`.
        host: The name node.
        port: Its port.
        user: The owner of the files.
        kerb_ticket: The path of the Kerberos ticket cache.
        driver: Only `libhdfs`: pyarrow no longer has another.
        extra_conf: Hadoop settings, by name.
        *args: Arguments of `Store`.
        **kwargs: The same.

    Raises:
        ValueError: Another driver is requested.
    """

    def __init__(
        self,
        prefix_path: str | os.PathLike[str],
        host: str | None = None,
        port: int | None = None,
        user: str | None = None,
        kerb_ticket: str | None = None,
        driver: str = "libhdfs",
        extra_conf: dict[str, str] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if driver != "libhdfs":
            raise ValueError(
                f"HDFSStore: driver={driver!r} went with pyarrow.hdfs; pyarrow.fs has libhdfs only"
            )
        if kwargs.get("filesystem") is None:
            from pyarrow.fs import HadoopFileSystem

            scheme, _, rest = os.fspath(prefix_path).rpartition("://")
            authority, _, path = rest.partition("/") if scheme else ("", "", rest)
            name, _, number = authority.partition(":")
            kwargs["filesystem"] = HadoopFileSystem(
                host or name or "default",
                port or int(number or 0),
                user=user,
                kerb_ticket=kerb_ticket,
                extra_conf=extra_conf,
            )
            prefix_path = f"/{path}" if scheme else path
        super().__init__(prefix_path, *args, **kwargs)


class DBFSLocalStore(FilesystemStore):
    """A store in the Databricks File System, through its mount `/dbfs`.

    Args:
        prefix_path: `dbfs:/folder`, `/dbfs/folder` or `file:///dbfs/folder`.
        *args: Arguments of `Store`.
        **kwargs: The same.
    """

    def __init__(self, prefix_path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        super().__init__(self.normalize_path(os.fspath(prefix_path)), *args, **kwargs)

    @staticmethod
    def normalize_path(path: str) -> str:
        """Return the path below `/dbfs`."""
        path = path.removeprefix("file://")
        if path.startswith("dbfs:"):
            path = "/dbfs/" + path.removeprefix("dbfs:").lstrip("/")
        return path


class S3Store(FilesystemStore):
    """A store in S3: `S3Store("s3://bucket/folder")`."""


class GCSStore(FilesystemStore):
    """A store in Google Cloud Storage: `GCSStore("gs://bucket/folder")`."""


def _numbered(path: str, idx: int | None) -> str:
    return path if idx is None else f"{path}.{idx}"


def _opened(
    prefix: str, options: dict[str, Any] | None, filesystem: FileSystem | None
) -> tuple[FileSystem, str]:
    """Return the file system of a path or URI, and the path in it. Raises ValueError."""
    from pyarrow.fs import FileSystem, FSSpecHandler, LocalFileSystem, PyFileSystem

    if filesystem is not None:
        return filesystem, prefix.rstrip("/")
    scheme = prefix.partition("://")[0] if "://" in prefix else ""
    if options is not None:
        import fsspec

        made = fsspec.filesystem(scheme or "file", **options)
        return PyFileSystem(FSSpecHandler(made)), made._strip_protocol(prefix)
    if not scheme:
        return LocalFileSystem(), os.path.abspath(prefix)  # noqa: PTH100
    try:
        found, path = FileSystem.from_uri(prefix)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"no store at {prefix!r}: {error}. pyarrow knows the schemes {', '.join(_KNOWN)}; for "
            "others give storage_options= (fsspec) or filesystem= (pyarrow.fs)"
        ) from error
    return found, path.rstrip("/")
