"""Sirtaki on Ray: functions of a program on actors that train together.

```python
from horovod.ray import RayExecutor

executor = RayExecutor(RayExecutor.create_settings(), num_workers=4)
executor.start()
results = executor.run(train)
executor.shutdown()
```
"""

from sirtaki.ray.executor import RayExecutor
from sirtaki.ray.worker import BaseHorovodWorker

__all__ = ["BaseHorovodWorker", "RayExecutor"]
