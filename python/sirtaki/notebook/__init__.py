"""`%load_ext sirtaki.notebook`: cells that run on many processes.

```text
%%sirtaki -np 4
import horovod.torch as hvd
hvd.init()
hvd.allreduce(torch.ones(1) * hvd.rank())
```

The cell runs on each rank, with the functions, modules and values of the notebook that it names.
What ranks print comes as they print it. The value of the cell is a list: that of its last
expression on each rank, in rank order.
"""

from sirtaki.notebook.magic import load_ipython_extension

__all__ = ["load_ipython_extension"]
