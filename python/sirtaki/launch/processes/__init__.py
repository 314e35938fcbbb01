"""Starts, watches and ends the processes of ranks, here and on other hosts."""

import sys

from sirtaki.launch.errors import ONLY_LINUX, LaunchError

if sys.platform != "linux":
    raise LaunchError(ONLY_LINUX)
