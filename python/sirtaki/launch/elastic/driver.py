"""The policy of elastic jobs: replace lost processes and form worlds of the ready ones."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence

import sirtaki
from sirtaki.launch.elastic.departures import Departures, Farewell, ProgramErrors
from sirtaki.launch.elastic.settings import Elastic
from sirtaki.launch.elastic.starts import Cooldowns, HostPool, Starts
from sirtaki.launch.elastic.worlds import JobMember, NextWorld, Worlds
from sirtaki.launch.errors import FAILED, JobError
from sirtaki.launch.output.summary import elastic_summary
from sirtaki.launch.processes.events import HostProcesses
from sirtaki.launch.processes.outcome import Crew, Policy, Verdict, failure_of
from sirtaki.rendezvous.stores.store import Store
from sirtaki.rendezvous.threads import Inbox
from sirtaki.rendezvous.world import elastic as messages

# The value of this key names the keys that nobody may wait for any more.
ABANDON = "elastic/abandon"


class Driver(Policy):
    """Makes the decisions in an elastic job.

    elastic: the user's settings. hosts: starts processes. store: the job's. say: shows a message
    to the user.
    """

    def __init__(
        self, elastic: Elastic, hosts: HostPool, store: Store, say: Callable[[str], None]
    ) -> None:
        self._elastic = elastic
        self._hosts = hosts
        self._store = store
        self._say = say
        self._worlds = Worlds(elastic.least, elastic.most)
        self._cooldowns = Cooldowns(elastic.cooldown)
        self._errors = ProgramErrors()
        self._departures = Departures()
        self._farewell: Farewell | None = None
        self._checkpoint: messages.Checkpoint | None = None
        self._slots: dict[str, int] = {}
        self._knows_hosts = False
        # Hosts that discovery once stopped listing.
        self._went: set[str] = set()
        self._starts = Starts(elastic, hosts, self._worlds, self._cooldowns)
        self._has_ended_well = False
        self._all_lost_in = -1
        # Processes that ended by an error since the last world began.
        self.failed: list[int] = []
        self._is_over = False
        self._incomplete_since: float | None = time.monotonic()
        self._first_world_at = 0.0
        self._inbox: Inbox[Callable[[], object]] = Inbox()
        self._crew: Crew | None = None

    @property
    def started(self) -> int:
        """How many processes have been started."""
        return self._starts.started

    # ---- Called by other threads ----

    def on_set(self, key: str, value: bytes) -> str:
        """Receive a value that a process set in the store; return a key that can be deleted."""
        try:
            said = messages.parse_said(key, value)
        except ValueError as error:
            text = str(error)
            self._inbox.put(lambda: self._say(text))
            return ""
        if said is None:
            return ""
        self._inbox.put(lambda: self._take(said))
        return messages.last_place_key(said) if isinstance(said, messages.Ready) else ""

    def on_hosts(self, hosts: dict[str, int]) -> None:
        """Receive the current hosts."""
        self._inbox.put(lambda: self._take_hosts(hosts))

    def on_trouble(self, text: str) -> None:
        """Receive a message for the user."""
        self._inbox.put(lambda: self._say(text))

    # ---- See Policy ----

    def begin(self, crew: Crew) -> int | None:
        """See `Policy`."""
        self._crew = crew
        return self._inbox.fileno()

    def end(self) -> None:
        """Close the inbox."""
        self._inbox.close()

    def ready(self, host: HostProcesses) -> None:
        """See `Policy`."""
        assert self._crew is not None
        self._starts.ready(host, self._crew)

    def refused(self, host: str, why: str) -> Verdict | None:
        """See `Policy`."""
        return self._lose_host(host, why)

    def lost(self, host: str, ranks: Sequence[int], how: str) -> Verdict | None:
        """See `Policy`."""
        return self._lose_host(host, how)

    def gone(self, host: HostProcesses) -> Verdict | None:
        """See `Policy`."""
        if self._starts.gone(host) and any(
            member.host == host.host for member in self._worlds.alive.values()
        ):
            return self._lose_host(host.host, "the process that watches the workers was killed")
        return self._decide()

    def ended(self, rank: int, host: str, code: int) -> Verdict | None:
        """See `Policy`."""
        self._take_inbox()
        leaves = rank in self._worlds.leaving or self._departures.has_asked(rank)
        member = self._worlds.remove(rank)
        if member is None:
            return self._decide()
        self._abandon(member)
        if code > 0:
            self.failed.append(rank)
        if self._farewell is not None:
            return self._take_farewell(member, code, self._farewell) or self._decide()
        if code == 0:
            self._has_ended_well |= not member.ready and not leaves
            return self._decide()
        if leaves:
            return self._decide()
        return self._take_failure(member, code) or self._decide()

    def deadline(self) -> float | None:
        """See `Policy`."""
        times = [self._cooldowns.next_end, self._departures.settles_at]
        if self._farewell is not None:
            times.append(self._farewell.until)
        if self._incomplete_since is not None:
            times.append(self._incomplete_since + self._elastic.timeout)
        return min((at for at in times if at is not None), default=None)

    def look(self) -> Verdict | None:
        """See `Policy`."""
        self._take_inbox()
        self._cooldowns.look(time.monotonic())
        return self._decide()

    def cancelled(self, host: str, number: int) -> bool:
        """See `Policy`."""
        for member in self._worlds.alive.values():
            if member.host == host:
                self._departures.ask(member.id, number, time.monotonic())
        return True

    def asked(self, number: int) -> bool:
        """See `Policy`."""
        self._take_inbox()
        members = [member.id for member in self._worlds.current]
        if self._farewell or not self._departures.can_all(members, number):
            return False
        self._leave_all(number)
        return True

    @property
    def exit_code(self) -> int | None:
        """See `Policy`."""
        return self._farewell.code if self._farewell and self._farewell.left else None

    @property
    def last_checkpoint(self) -> str:
        """A description of the last checkpoint, "" if none is known."""
        told = self._checkpoint
        return "" if told is None else f"the last checkpoint is {told.path} (step {told.step})"

    @property
    def summary(self) -> str:
        """The line that ends a successful job, "" if it had no world."""
        worlds = self._worlds
        if worlds.epoch < 0:
            return ""
        seconds = time.monotonic() - self._first_world_at
        return elastic_summary(worlds.size, seconds, worlds.epoch + 1)

    @property
    def goes_on(self) -> bool:
        """See `Policy`."""
        return not self._is_over

    # ---- Decisions ----

    def _take_inbox(self) -> None:
        for call in self._inbox.take():
            call()

    def _take(self, said: messages.Said) -> None:
        """Handle a message of a process."""
        if isinstance(said, messages.Ready):
            self._take_ready(said)
        elif isinstance(said, messages.Raised):
            self._errors.take(said)
        elif isinstance(said, messages.Ending):
            self._take_ending(said)
        elif isinstance(said, messages.Training):
            self._departures.take(said)
        elif isinstance(said, messages.Leaving):
            self._departures.ask(said.id, said.signal, time.monotonic())
        else:
            self._checkpoint = said

    def _take_ready(self, ready: messages.Ready) -> None:
        if ready.version == sirtaki.__version__:
            self._worlds.take(ready)
            self._errors.forget(ready.id)
            return
        text = (
            f"process {ready.id} runs Sirtaki {ready.version}, this job {sirtaki.__version__}: "
            "install the same version on all hosts"
        )
        self._say(text)
        self._publish(messages.place_key(ready), messages.Place(-1, refusal=text))

    def _take_ending(self, said: messages.Ending) -> None:
        """Stop waiting for a process that ends, which may take a while."""
        member = self._worlds.alive.get(said.id)
        if member is None or (said.asks and member.ready):
            return
        if said.asks:
            others = [each.id for each in self._worlds.current if each is not member]
            if others and all(self._errors.of(other) for other in others):
                return  # all processes raised: the program goes on with them together
            self._store.set(messages.given_up_key(said.id), b"")
        member.ready, member.ends = None, True
        self._abandon(member)

    def _take_hosts(self, hosts: dict[str, int]) -> None:
        for host in hosts.keys() - self._slots.keys():
            seconds = 0.0
            if host in self._went:
                # A host that comes and goes must not interrupt training each time.
                seconds = self._cooldowns.failed(host, time.monotonic())
            again = f", again, and takes new processes in {seconds:g} s" if seconds else ""
            if self._knows_hosts:
                self._say(f"host {host} has come with {hosts[host]} slot(s){again}")
        self._knows_hosts = True
        for host in self._slots.keys() - hosts.keys():
            self._went.add(host)
            self._say(f"host {host} has gone from the list of hosts")
        self._slots = dict(hosts)
        for host, slots in hosts.items():
            here = sorted((m.place, m.id) for m in self._stay_on(host))
            if surplus := [process_id for _, process_id in here[slots:]]:
                ids = ", ".join(map(str, surplus))
                self._say(f"host {host} has {slots} slot(s) left: processes {ids} leave")
                self._worlds.leaving |= set(surplus)

    def _stay_on(self, host: str) -> list[JobMember]:
        """Return the processes of a host that are not about to leave."""
        alive = self._worlds.alive.values()
        return [m for m in alive if m.host == host and m.id not in self._worlds.leaving]

    def _take_failure(self, member: JobMember, code: int) -> Verdict | None:
        """Handle the failure of a process."""
        failure = failure_of(member.id, code)
        how = failure.signal_name or f"code {code}"
        symptom = f"process {member.id} on {member.host} ended with {how}"
        hosts = {other.host for other in self._worlds.alive.values()} | {member.host}
        if why := self._errors.ended(member.id, member.host, hosts):
            return Verdict(symptom, JobError(f"{symptom}; {why}"))
        if self._worlds.epoch < 0 and not self._worlds.alive and not self._starts.planned:
            return Verdict(symptom, JobError(f"{symptom}, and no process came to a world"))
        seconds = self._cooldowns.failed(member.host, time.monotonic())
        if self._all_are_lost:
            return self._judge_loss_of_all(f"{symptom}; ")
        self._say(
            f"{symptom}; the job goes on with {len(self._worlds.alive)} process(es), and its host "
            f"takes a new one in {seconds:g} s"
        )
        return None

    def _spare_host(self, host: str, why: str) -> None:
        """Start no new process on a host for a while; its running ones continue."""
        seconds = self._cooldowns.failed(host, time.monotonic())
        self._say(f"host {host} takes no new process: {why}; it is tried again in {seconds:g} s")

    def _lose_host(self, host: str, how: str) -> Verdict | None:
        """Handle the loss of a host with all its processes."""
        self._starts.forget(host)
        lost = [member for member in self._worlds.alive.values() if member.host == host]
        for member in lost:
            self._worlds.remove(member.id)
            self._abandon(member)
        seconds = self._cooldowns.failed(host, time.monotonic())
        ids = ", ".join(str(member.id) for member in lost) or "none"
        self._say(
            f"host {host} (processes {ids}) was lost: {how}; it is tried again in {seconds:g} s"
        )
        return self._decide()

    def _decide(self) -> Verdict | None:
        """Act on the current state."""
        assert self._crew is not None
        if self._is_over:
            return None
        self._settle()
        if self._farewell is not None:
            return self._see_off(self._farewell)
        worlds = self._worlds
        left = worlds.alive if worlds.epoch < 0 else worlds.current
        if self._has_ended_well and not left:
            # Spares, and processes that have not joined a world by now, have nothing left to do.
            self._is_over = True
            self._crew.finish()
            return None
        if self._all_are_lost and (verdict := self._judge_loss_of_all()):
            return verdict
        if not self._has_ended_well:
            for host, why in self._starts.fill(self._slots, self._crew):
                if self._stay_on(host):
                    self._spare_host(host, why)
                else:
                    self._lose_host(host, why)
        if verdict := self._make_world():
            return verdict
        if self._departures.settles_at is None and (bits := worlds.update(self._slots)):
            self._publish(messages.update_key(worlds.epoch), messages.update_now(bits))
        return self._check_patience()

    def _make_world(self) -> Verdict | None:
        worlds = self._worlds
        # The first world waits for all processes of the full size while they may still come.
        world = worlds.next_world(self._slots)
        if world is None:
            self._dismiss(worlds.dismiss(self._slots))
            return self._judge_rest()
        limit = self._elastic.reset_limit
        if limit is not None and world.epoch > limit:
            text = (
                "Horovod was shutdown because number of resets during elastic job exceeded limit: "
                f"{limit}"
            )
            return Verdict(text, JobError(text))
        self._place(world)
        return None

    def _judge_rest(self) -> Verdict | None:
        """Fail a job whose last processes ask for a world after others have finished."""
        worlds = self._worlds
        waiting = [member for member in worlds.current if member.ready]
        if not self._has_ended_well or worlds.is_running or not waiting:
            return None
        ids = ", ".join(str(member.id) for member in waiting)
        text = (
            f"processes {ids} lost the others, who have ended with exit code 0, and are fewer than "
            f"--min-np {self._elastic.least}"
        )
        return Verdict(text, JobError(text))

    def _place(self, world: NextWorld) -> None:
        """Send the members of a new world their places."""
        hosts = [member.host for member in world.members]
        ids = [member.id for member in world.members]
        told = messages.places(ids, hosts, world.epoch, world.fresh)
        for member, place in zip(world.members, told, strict=True):
            assert member.ready is not None
            self._publish(messages.place_key(member.ready), place)
        self._dismiss(world.leaving)
        self._worlds.placed(world)
        self.failed.clear()
        self._store.set(ABANDON, messages.keys_of_world(world.epoch - 1).encode())
        self._incomplete_since = None
        if world.epoch == 0:
            self._first_world_at = time.monotonic()
        else:
            self._say(f"world {world.epoch}: {len(ids)} process(es), {world.fresh} of them new")

    def _dismiss(self, members: Sequence[JobMember]) -> None:
        for member in members:
            assert member.ready is not None
            self._publish(messages.place_key(member.ready), messages.Place(-1))

    @property
    def _all_are_lost(self) -> bool:
        """Whether every process with the state was lost, which has not been judged yet."""
        worlds = self._worlds
        if worlds.epoch < 0 or worlds.current or self._has_ended_well:
            return False
        return self._all_lost_in != worlds.epoch

    def _judge_loss_of_all(self, symptom: str = "") -> Verdict | None:
        """Decide whether a job goes on after every process with the state was lost."""
        epoch = self._all_lost_in = self._worlds.epoch
        text = f"{symptom}no process of world {epoch} is left, "
        if checkpoint := self.last_checkpoint:
            self._say(f"{text}so the state is lost; new processes begin anew: {checkpoint}")
            return None
        if self._departures.has_trained:
            text += (
                "so the state is lost: start the job again from what it has written (after "
                "sirtaki.elastic.note_checkpoint new processes begin with that checkpoint)"
            )
        else:
            text += "and none has called a function with @hvd.elastic.run"
        return Verdict(text, JobError(text))

    # ---- Leaving ----

    def _settle(self) -> None:
        """Let the processes leave that have asked to; if all have, end the job."""
        now = time.monotonic()
        if not self._departures.settled(now) or self._farewell is not None:
            return
        worlds = self._worlds
        number = self._departures.of_all(member.id for member in worlds.current)
        if number is not None:
            self._leave_all(number)
            return
        for member in worlds.alive.values():
            if self._departures.has_asked(member.id) and member.id not in worlds.leaving:
                self._cooldowns.rest(member.host, now)
                worlds.leaving.add(member.id)
                self._say(
                    f"process {member.id} on {member.host} has got a signal and leaves; its host "
                    "takes no new process for a while"
                )

    def _leave_all(self, number: int) -> None:
        self._farewell = Farewell(number, time.monotonic() + self._elastic.leave_seconds)
        # No process is dismissed before it has written its checkpoint.
        self._worlds.leaving.clear()

    def _see_off(self, farewell: Farewell) -> Verdict | None:
        """Have all processes leave together, after the same commit."""
        assert self._crew is not None
        worlds = self._worlds
        if not worlds.current:
            self._is_over = True
            self._crew.finish()
        elif time.monotonic() >= farewell.until:
            ids = ", ".join(str(member.id) for member in worlds.current)
            text = (
                f"processes {ids} have not left within {self._elastic.leave_seconds:g} s "
                "(--leave-seconds): a commit() must come as often"
            )
            asked_to_end = farewell.signal == signal.SIGTERM
            return Verdict(text, JobError(text, farewell.code if asked_to_end else FAILED))
        elif world := worlds.next_world(self._slots):
            self._place(world)
        elif worlds.may_tell:
            worlds.tell()
            update = messages.update_now(messages.LEAVE, farewell.code)
            self._publish(messages.update_key(worlds.epoch), update)
        return None

    def _take_farewell(self, member: JobMember, code: int, farewell: Farewell) -> Verdict | None:
        """Handle the end of a process while all have to leave."""
        if code == farewell.code:
            farewell.left += 1
        elif code != 0:
            failure = failure_of(member.id, code)
            how = failure.signal_name or f"code {code}"
            text = f"process {member.id} on {member.host} ended with {how} instead of leaving"
            return Verdict(text, JobError(text))
        return None

    def _check_patience(self) -> Verdict | None:
        """Fail the job if too few processes have been ready for too long."""
        current = self._worlds.current
        all_end = bool(current) and all(member.ends for member in current)
        if self._worlds.is_running or self._has_ended_well or all_end:
            self._incomplete_since = None
            return None
        now = time.monotonic()
        if self._incomplete_since is None:
            self._incomplete_since = now
        if now < self._incomplete_since + self._elastic.timeout:
            return None
        there = sum(member.ready is not None for member in self._worlds.alive.values())
        text = (
            f"within {self._elastic.timeout:g} s (--elastic-timeout) {there} process(es) of the "
            f"{self._elastic.least} that --min-np wants were ready"
        )
        return Verdict(text, JobError(text))

    def _abandon(self, member: JobMember) -> None:
        """Stop the others' wait for a process that ended while its world was being set up."""
        if member.epoch == self._worlds.epoch >= 0:
            self._store.set(ABANDON, messages.keys_of_world(member.epoch).encode())

    def _publish(self, key: str, message: messages.Place | messages.Update) -> None:
        self._store.set(key, messages.pack(message))
