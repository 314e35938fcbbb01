"""The process of a Spark task in an elastic job: an agent that starts ranks for the driver.

`python -m sirtaki.spark.elastic.agent`; it reads the driver's address from standard input.
"""

from __future__ import annotations

import json
import sys

from sirtaki.launch.errors import FAILED, LaunchError
from sirtaki.launch.processes.connecting_agent import serve


def main() -> int:
    """Serve the driver until it no longer needs this agent; return the exit code."""
    job = json.loads(sys.stdin.buffer.readline())
    try:
        serve(job, bytes.fromhex(job["secret"]), job["task"])
    except LaunchError as error:
        print(f"sirtaki agent of task {job['task']}: {error}", file=sys.stderr)
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
