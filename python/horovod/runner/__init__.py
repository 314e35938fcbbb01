"""The launcher under Horovod's names."""

from sirtaki.launch.api import run

__all__ = ["run"]
