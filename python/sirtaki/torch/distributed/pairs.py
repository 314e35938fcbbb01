"""Messages from one rank of a group to another."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from sirtaki.torch.distributed import buffers
from sirtaki.torch.distributed.works import Work


class Pairs:
    """Send and receive, in the form in which `torch.distributed` calls them."""

