"""`torch.distributed` on our engine: `init_process_group("sirtaki")`.

Nothing more is needed where sirtaki is installed; importing this module registers the backend where
PyTorch's own discovery is off.
"""

from sirtaki.autoload import register

__all__ = ["register"]

register()
