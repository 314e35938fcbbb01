"""Lightning on Sirtaki: `Trainer(strategy="sirtaki")` and `Fabric(strategy="sirtaki")`.

Importing this module registers the names `sirtaki` and `horovod` with Lightning. Start the script
with `horovodrun` or any other starter supported by `hvd.init()`.
"""

from sirtaki.lightning.environment import SirtakiEnvironment
from sirtaki.lightning.strategies import (
    HorovodStrategy,
    SirtakiFabricStrategy,
    SirtakiStrategy,
    register,
)

__all__ = [
    "HorovodStrategy",
    "SirtakiEnvironment",
    "SirtakiFabricStrategy",
    "SirtakiStrategy",
    "register",
]

register()
