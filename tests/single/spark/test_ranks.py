"""Which rank each task of Spark has."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from sirtaki.spark.barrier import ranks_by_host


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=12))
def test_ranks_of_a_host_are_neighbours_and_task_0_has_rank_0(hosts: list[str]) -> None:
    ranks = ranks_by_host(hosts)
    assert sorted(ranks) == list(range(len(hosts)))
    assert ranks[0] == 0
    in_order = [hosts[ranks.index(rank)] for rank in range(len(hosts))]
    changes = sum(one != other for one, other in itertools.pairwise(in_order))
    assert changes == len(set(hosts)) - 1
