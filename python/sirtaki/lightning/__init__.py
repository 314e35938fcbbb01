"""Lightning on Sirtaki: `Trainer(strategy="sirtaki")` and `Fabric(strategy="sirtaki")`.

Importing this module registers the two names `sirtaki` and `horovod` with Lightning. Start the
script with `horovodrun` or any other starter that `hvd.init()` knows.
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
