"""What a blob of one of several processes is to that of one process with the whole batch.

Gradients of params are averaged over the processes. The average is the gradient of one process
with the whole batch if each process's loss is such that their mean is the whole batch's loss. So
every number that is made of all items has, in each process, a value whose mean over the processes
is the whole batch's: a mean over items is that by itself, a sum is multiplied by the number of
processes. Means of such numbers stay means under linear layers; any other layer that reads one is
given the mean over the processes, and hands back the mean of the gradients.
"""

from __future__ import annotations

from enum import IntEnum


class Share(IntEnum):
    """What a blob is to the whole batch's; a layer's top is by default the greatest of its bottoms.

    Attributes:
        SAME: The same in all processes: params, and what follows from them alone.
        MEAN: Made of all items; its mean over the processes is the whole batch's.
        ITEMS: Some of the items, in every process as many.
        CHOSEN: Some of the items; other processes may have more or fewer.
    """

    SAME = 0
    MEAN = 1
    ITEMS = 2
    CHOSEN = 3
