"""Sirtaki on Spark: functions of a driver on ranks that Spark's tasks start.

```python
import horovod.spark

results = horovod.spark.run(train, num_proc=4)
```
"""

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sirtaki.spark.elastic.runner import run_elastic
    from sirtaki.spark.failures import SparkRunError
    from sirtaki.spark.runner import run

_WHERE = {"SparkRunError": "failures", "run": "runner", "run_elastic": "elastic.runner"}
__all__ = ["SparkRunError", "run", "run_elastic"]


def lazily(package: str, where: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package that ranks import too, but without its driver's part.

    where: the module below the package that has each name, imported when the name is used.
    """

    def find(name: str) -> object:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{where[name]}"), name)

    return find


__getattr__ = lazily(__name__, _WHERE)
