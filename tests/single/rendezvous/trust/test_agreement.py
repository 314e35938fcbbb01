"""Ranks without a secret agree on one that the store does not tell."""

from __future__ import annotations

import threading
import time

import pytest

from sirtaki.rendezvous.trust import agreement
from tests.single.rendezvous.memory_store import MemoryStore


def agreed(store: MemoryStore, size: int) -> list[bytes]:
    found: list[bytes] = [b""] * size

    def run(rank: int) -> None:
        found[rank] = agreement.agree(store, "a", rank, size, time.monotonic() + 30)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_all_ranks_have_one_secret_that_the_store_never_held() -> None:
    store = MemoryStore()
    found = agreed(store, 3)
    assert len(set(found)) == 1
    assert len(found[0]) == 32
    left = [store.get(f"a/public/{rank}", 1) for rank in range(3)]
    left += [store.get(f"a/grant/{rank}", 1) for rank in (1, 2)]
    assert all(found[0] not in value for value in left)
    assert len(set(left)) == 5


def test_every_agreement_has_another_secret() -> None:
    assert agreed(MemoryStore(), 2) != agreed(MemoryStore(), 2)


@pytest.mark.parametrize("key", [b"", b"\0" * 384, b"\0" * 383 + b"\1", b"\xff" * 384, b"\2" * 385])
def test_a_public_key_that_gives_the_secret_away_is_refused(key: bytes) -> None:
    store = MemoryStore()
    store.set("a/public/1", key)
    with pytest.raises(ValueError, match="public key that makes no sense"):
        agreement.agree(store, "a", 0, 2, time.monotonic() + 5)
