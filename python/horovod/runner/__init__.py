"""The launcher under Horovod's names."""

from horovod.runner._arguments import _HorovodArgs
from sirtaki.launch.api import run

__all__ = ["_HorovodArgs", "run"]
