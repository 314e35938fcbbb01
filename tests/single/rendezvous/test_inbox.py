"""A loop that waits on an inbox wakes when another thread leaves something there."""

from __future__ import annotations

import select
import threading

from sirtaki.rendezvous.threads import Inbox

LIMIT = 20.0


def is_readable(inbox: Inbox[int], seconds: float = 0.0) -> bool:
    return bool(select.select([inbox], [], [], seconds)[0])


def test_what_another_thread_has_left_is_taken_in_its_order() -> None:
    inbox: Inbox[int] = Inbox()
    assert not is_readable(inbox)
    thread = threading.Thread(target=lambda: [inbox.put(number) for number in range(3)])
    thread.start()
    assert is_readable(inbox, LIMIT)
    thread.join()
    assert list(inbox.take()) == [0, 1, 2]
    assert not is_readable(inbox)
    assert list(inbox.take()) == []
    inbox.close()


def test_more_than_the_sockets_hold_is_kept() -> None:
    inbox: Inbox[int] = Inbox()
    for number in range(100_000):
        inbox.put(number)
    assert list(inbox.take()) == list(range(100_000))
    inbox.close()


def test_nobody_is_disturbed_by_what_comes_after_the_end() -> None:
    inbox: Inbox[int] = Inbox()
    inbox.close()
    inbox.put(1)
