"""Messages from one rank to another."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from sirtaki.core.errors import CollectiveTimeoutError, MismatchError


def rank() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


@pytest.fixture(autouse=True)
def peers() -> None:
    if size() == 1:
        pytest.skip("needs a peer")


@pytest.mark.parametrize("elements", [0, 1, 1000, 3_000_000])
def test_a_tensor_goes_around_the_ring(elements: int) -> None:
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    sent, received = torch.full((elements,), float(rank())), torch.zeros(elements)
    works = [dist.irecv(received, left), dist.isend(sent, right)]
    for work in works:
        work.wait()
    assert torch.equal(received, torch.full((elements,), float(left)))


def test_tags_tell_messages_apart() -> None:
    if rank() == 0:
        for tag in (7, 8):
            dist.send(torch.tensor([float(tag)]), 1, tag=tag)
    elif rank() == 1:
        for tag in (8, 7):
            tensor = torch.zeros(1)
            dist.recv(tensor, 0, tag=tag)
            assert tensor.item() == tag


def test_a_message_of_anybody_tells_whose_it_is() -> None:
    if rank() == 0:
        senders = set()
        for _ in range(size() - 1):
            tensor = torch.zeros(1)
            sender = dist.recv(tensor)
            assert tensor.item() == sender
            senders.add(sender)
        assert senders == set(range(1, size()))
    else:
        dist.send(torch.tensor([float(rank())]), 0)


def test_a_strided_tensor_is_filled() -> None:
    if rank() == 0:
        dist.send(torch.arange(6.0).view(2, 3).t(), 1)
    elif rank() == 1:
        tensor = torch.zeros(6, 2)[::2]
        dist.recv(tensor, 0)
        assert torch.equal(tensor, torch.arange(6.0).view(2, 3).t())


def test_a_message_of_another_size_is_an_error_of_the_receiver_alone() -> None:
    if rank() == 0:
        dist.send(torch.ones(4), 1)
    elif rank() == 1:
        with pytest.raises((MismatchError, ValueError), match="16"):
            dist.recv(torch.zeros(2), 0)


def test_batches_of_messages_cross() -> None:
    received = [torch.zeros(2) for _ in range(size())]
    operations = []
    for peer in range(size()):
        if peer == rank():
            continue
        sent = torch.full((2,), 10.0 * rank() + peer)
        operations.append(dist.P2POp(dist.isend, sent, peer))
        operations.append(dist.P2POp(dist.irecv, received[peer], peer))
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for peer, tensor in enumerate(received):
        assert peer == rank() or tensor.tolist() == [10.0 * peer + rank()] * 2


def test_messages_of_a_group_are_its_own() -> None:
    group = dist.new_group(list(range(size())))
    if rank() == 0:
        dist.send(torch.tensor([1.0]), 1)
        dist.send(torch.tensor([2.0]), 1, group=group)
    elif rank() == 1:
        tensor = torch.zeros(1)
        dist.recv(tensor, 0, group=group)
        assert tensor.item() == 2
        dist.recv(tensor, 0)
        assert tensor.item() == 1


def test_a_message_is_waited_for_as_long_as_the_group_allows() -> None:
    group = dist.new_group(list(range(size())), timeout=timedelta(seconds=2))
    if rank() == 0:
        with pytest.raises(CollectiveTimeoutError, match="Timed out waiting 2 s"):
            dist.recv(torch.zeros(1), 1, group=group)
