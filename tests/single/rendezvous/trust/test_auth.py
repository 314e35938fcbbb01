"""The proof that both ends of a connection know the job's secret."""

from __future__ import annotations

import hmac
import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirtaki.rendezvous.trust import auth

SECRET = bytes(range(32))
HERE = auth.Identity("node-a", "1.0")
THERE = auth.Identity("node-b", "1.0")
CLAIM = b"c" * auth.CLAIM_BYTES


def pair(
    secrets: tuple[bytes, bytes] = (SECRET, SECRET),
    purposes: tuple[int, int] = (auth.STORE, auth.STORE),
    identities: tuple[auth.Identity, auth.Identity] = (HERE, THERE),
) -> tuple[auth.Dialer, auth.Listener]:
    dialer = auth.Dialer(secrets[0], purposes[0], identities[0], CLAIM)
    return dialer, auth.Listener(secrets[1], purposes[1], identities[1], b"l" * auth.CLAIM_BYTES)


def test_two_who_know_the_secret_learn_each_others_claims() -> None:
    dialer, listener = pair()
    proof, claim = dialer.prove(listener.answer(dialer.greeting))
    assert claim == b"l" * auth.CLAIM_BYTES
    assert listener.accept(proof) == CLAIM


def test_messages_have_a_fixed_size() -> None:
    dialer, listener = pair()
    answer = listener.answer(dialer.greeting)
    sizes = len(dialer.greeting), len(answer), len(dialer.prove(answer)[0])
    assert sizes == (auth.GREETING_BYTES, auth.ANSWER_BYTES, auth.PROOF_BYTES) == (164, 196, 32)


def test_the_secret_is_in_no_message() -> None:
    dialer, listener = pair()
    answer = listener.answer(dialer.greeting)
    assert SECRET not in dialer.greeting + answer + dialer.prove(answer)[0]


def test_another_secret_is_found_out_by_both_sides() -> None:
    dialer, listener = pair(secrets=(SECRET, os.urandom(32)))
    with pytest.raises(auth.WrongSecretError, match="SIRTAKI_SECRET_FILE") as found:
        dialer.prove(listener.answer(dialer.greeting))
    # What the dialer still sends makes the listener say the same.
    with pytest.raises(auth.WrongSecretError, match="another job"):
        listener.accept(found.value.answer)


def test_a_recorded_conversation_is_worth_nothing() -> None:
    dialer, listener = pair()
    recorded = dialer.prove(listener.answer(dialer.greeting))[0]
    again = auth.Listener(SECRET, auth.STORE, THERE)
    again.answer(dialer.greeting)
    with pytest.raises(auth.WrongSecretError):
        again.accept(recorded)


def test_a_listeners_recorded_answer_is_worth_nothing() -> None:
    dialer, listener = pair()
    recorded = listener.answer(dialer.greeting)
    with pytest.raises(auth.WrongSecretError):
        auth.Dialer(SECRET, auth.STORE, HERE).prove(recorded)


def test_a_proof_sent_back_to_its_maker_is_refused() -> None:
    dialer, listener = pair()
    answer = listener.answer(dialer.greeting)
    with pytest.raises(auth.WrongSecretError):
        listener.accept(answer[auth.GREETING_BYTES :])
    # A greeting mirrored to a dialer comes from the wrong side.
    with pytest.raises(auth.NotAPeerError):
        dialer.prove(dialer.greeting + bytes(auth.PROOF_BYTES))


def test_a_listener_for_something_else_is_refused() -> None:
    dialer, listener = pair(purposes=(auth.RANK, auth.STORE))
    with pytest.raises(auth.NotAPeerError, match="wanted something else"):
        listener.answer(dialer.greeting)


@pytest.mark.parametrize("position", [10, 11, 12, 44, 68, 132, 163])
def test_every_field_of_a_greeting_is_covered_by_the_proof(position: int) -> None:
    dialer, listener = pair()
    changed = bytearray(listener.answer(dialer.greeting))
    changed[position] ^= 1
    with pytest.raises(auth.AuthenticationError):
        dialer.prove(bytes(changed))


@pytest.mark.parametrize("position", [10, 11, 12, 44, 68, 132, 163])
def test_a_claim_changed_on_the_way_is_refused(position: int) -> None:
    dialer, listener = pair()
    changed = bytearray(dialer.greeting)
    changed[position] ^= 1
    with pytest.raises(auth.AuthenticationError):
        dialer.prove(listener.answer(bytes(changed)))


def test_versions_must_agree_and_both_sides_say_who_runs_what() -> None:
    dialer, listener = pair(identities=(HERE, auth.Identity("node-b", "2.0")))
    answer = listener.answer(dialer.greeting)
    with pytest.raises(auth.VersionMismatchError) as found:
        dialer.prove(answer)
    assert "host node-a runs Sirtaki 1.0, host node-b runs 2.0" in str(found.value)
    with pytest.raises(auth.VersionMismatchError, match=r"node-b runs Sirtaki 2.0, host node-a"):
        listener.accept(found.value.answer)


def test_another_protocol_is_told_from_garbage_by_both_sides() -> None:
    dialer, listener = pair()
    newer = struct.pack("!H", 99)
    with pytest.raises(auth.OtherProtocolError, match="speaks protocol 99"):
        listener.answer(dialer.greeting[:8] + newer + dialer.greeting[10:])
    answer = listener.answer(dialer.greeting)
    with pytest.raises(auth.OtherProtocolError, match="install the same version on all hosts"):
        dialer.prove(answer[:8] + newer + answer[10:])


def test_a_strangers_name_cannot_write_on_the_terminal() -> None:
    evil = auth.Identity("\x1b[31mred\n", "9")
    dialer, listener = pair(identities=(HERE, evil))
    with pytest.raises(auth.VersionMismatchError) as found:
        dialer.prove(listener.answer(dialer.greeting))
    assert str(found.value).isprintable()


@given(st.binary(min_size=auth.GREETING_BYTES, max_size=auth.GREETING_BYTES))
def test_garbage_for_a_greeting_is_refused(data: bytes) -> None:
    with pytest.raises(auth.NotAPeerError):
        auth.Listener(SECRET, auth.STORE, HERE).answer(data)


@given(st.binary(min_size=auth.ANSWER_BYTES, max_size=auth.ANSWER_BYTES))
def test_garbage_for_an_answer_is_refused(data: bytes) -> None:
    with pytest.raises(auth.AuthenticationError):
        auth.Dialer(SECRET, auth.STORE, HERE).prove(data)


@given(st.binary(min_size=auth.PROOF_BYTES, max_size=auth.PROOF_BYTES))
def test_garbage_for_a_proof_is_refused(data: bytes) -> None:
    dialer, listener = pair()
    listener.answer(dialer.greeting)
    with pytest.raises(auth.WrongSecretError):
        listener.accept(data)


@given(st.binary(max_size=64))
def test_the_start_of_a_greeting_is_known_from_its_first_bytes(data: bytes) -> None:
    greeting = pair()[0].greeting
    assert auth.could_be_greeting(data) == (data[:8] == greeting[: len(data[:8])])


def test_proofs_are_hmac_sha256_over_both_greetings_with_a_label() -> None:
    dialer, listener = pair()
    answer = listener.answer(dialer.greeting)
    text = b"sirtaki proof of the listener\0" + dialer.greeting + answer[: auth.GREETING_BYTES]
    assert answer[auth.GREETING_BYTES :] == hmac.digest(SECRET, text, "sha256")


LONG = "0.2.0.dev12+g1234567.d20261126"


def test_a_long_version_is_let_in_to_itself_and_to_no_other() -> None:
    here, there = auth.Identity("node-a", LONG), auth.Identity("node-b", LONG)
    dialer, listener = pair(identities=(here, there))
    assert listener.accept(dialer.prove(listener.answer(dialer.greeting))[0]) == CLAIM
    other = auth.Identity("node-b", f"{LONG}1")
    dialer, listener = pair(identities=(here, other))
    with pytest.raises(auth.VersionMismatchError):
        dialer.prove(listener.answer(dialer.greeting))
