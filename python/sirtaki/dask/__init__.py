"""Sirtaki on Dask: training functions of a program on a group of workers.

```python
import sirtaki.dask
from distributed import Client

results = sirtaki.dask.run(Client("tcp://scheduler:8786"), train, np=4)
```
"""

from sirtaki.dask.runner import run

__all__ = ["run"]
