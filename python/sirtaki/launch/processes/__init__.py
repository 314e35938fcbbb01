"""Ranks as processes: started, watched and ended, here and on other hosts."""

import sys

from sirtaki.launch.errors import ONLY_LINUX, LaunchError

if sys.platform != "linux":
    raise LaunchError(ONLY_LINUX)
