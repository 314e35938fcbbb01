"""Sirtaki on Spark: functions of a driver on ranks that Spark's tasks start.

```python
import horovod.spark

results = horovod.spark.run(train, num_proc=4)
```
"""

from sirtaki.spark.runner import run

__all__ = ["run"]
