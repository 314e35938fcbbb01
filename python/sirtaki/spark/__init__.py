"""Sirtaki on Spark: functions of a driver on ranks that Spark's tasks start.

```python
import horovod.spark

results = horovod.spark.run(train, num_proc=4)
```
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sirtaki.spark.elastic.runner import run_elastic
    from sirtaki.spark.failures import SparkRunError
    from sirtaki.spark.runner import run

_WHERE = {"SparkRunError": "failures", "run": "runner", "run_elastic": "elastic.runner"}
__all__ = ["SparkRunError", "run", "run_elastic"]


def __getattr__(name: str) -> object:
    """Load the driver's modules on first use, because ranks import this package too."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
