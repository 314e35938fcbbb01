"""Run a command whose processes may not read one another's memory, as in many containers.

python benchmarks/refused.py COMMAND...

Where Yama's ptrace_scope is 1, as on Ubuntu, or a container's seccomp profile says so, the kernel
refuses `process_vm_readv` among the ranks of a job. Here a seccomp filter does.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

REFUSED = "one host, process_vm_readv refused"
WITHIN = [sys.executable, __file__]  # starts a command so
# As Open MPI has it: else it ends when what it found at its start is refused later.
_ENVIRONMENT = {"OMPI_MCA_smsc": "^cma"}
_CALLS = {"x86_64": (310, 311), "aarch64": (270, 271)}  # process_vm_readv, process_vm_writev
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _FILTER = 22, 38, 2
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


def refuse() -> None:
    """Have the kernel refuse these calls to this process and all that it starts.

    Raises:
        OSError: The kernel has no seccomp.
    """
    readv, writev = _CALLS[platform.machine()]
    program = [
        (_LOAD, 0, 0, 0),  # the number of the call
        (_IF_EQUAL, 1, 0, readv),
        (_IF_EQUAL, 0, 1, writev),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    described = struct.pack("H6xQ", len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _FILTER, described, 0, 0)):
        if libc.prctl(*call) != 0:
            raise OSError(ctypes.get_errno(), "the kernel takes no seccomp filter")


def main(command: list[str]) -> None:
    refuse()
    os.execvpe(command[0], command, {**os.environ, **_ENVIRONMENT})


if __name__ == "__main__":
    main(sys.argv[1:])
