"""`%load_ext sirtaki.notebook`: cells that run on many processes.

```text
%%sirtaki -np 4
import horovod.torch as hvd
hvd.init()
hvd.allreduce(torch.ones(1) * hvd.rank())
```

The cell runs on each rank, with the notebook's functions, modules and values that it names. Output
appears as ranks print it. The value of the cell is a list of the values of its last expression, in
rank order.
"""

from sirtaki.notebook.cells import load_ipython_extension

__all__ = ["load_ipython_extension"]
