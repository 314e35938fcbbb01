"""Sirtaki on Ray: training functions of a program on a group of actors.

```python
from horovod.ray import RayExecutor

executor = RayExecutor(RayExecutor.create_settings(), num_workers=4)
executor.start()
results = executor.run(train)
executor.shutdown()
```
"""

try:
    import ray as _ray  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "ray":
        raise
    raise ModuleNotFoundError(
        "sirtaki.ray needs Ray, and there is none here: pip install 'sirtaki[ray]'", name="ray"
    ) from None

from sirtaki.ray.elastic import ElasticRayExecutor
from sirtaki.ray.executor import RayExecutor
from sirtaki.ray.worker import BaseHorovodWorker

__all__ = ["BaseHorovodWorker", "ElasticRayExecutor", "RayExecutor"]
