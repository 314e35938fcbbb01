"""`torch.distributed` on our engine: `init_process_group("sirtaki")`.

Where Sirtaki is installed nothing else is needed; importing this module registers the backend where
PyTorch's own discovery is off.
"""

from sirtaki.autoload import register
from sirtaki.torch.distributed.functions import monitored_barrier, moved_by, split_group
from sirtaki.torch.distributed.started import init

__all__ = ["init", "monitored_barrier", "moved_by", "register", "split_group"]

register()
