"""Compile caffe.proto, the schema of Caffe's files, into the descriptor that the package reads.

python tools/compile_caffe_schema.py        needs grpcio-tools; run after a change of caffe.proto
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "sirtaki-caffe/python/sirtaki_caffe/proto"


def compiled() -> bytes:
    """The descriptor of caffe.proto, a serialized FileDescriptorProto."""
    from google.protobuf import descriptor_pb2
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        command = ["protoc", f"-I{FOLDER}", f"--descriptor_set_out={out}", "caffe.proto"]
        if protoc.main(command) != 0:
            raise SystemExit("caffe.proto does not compile")
        (file,) = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    return file.SerializeToString(deterministic=True)


def main() -> int:
    (FOLDER / "caffe.desc").write_bytes(compiled())
    return 0


if __name__ == "__main__":
    sys.exit(main())
