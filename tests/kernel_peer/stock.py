"""Debian's stock verbs programs: one end on our device, one on the guest's."""

import itertools
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "apps"))
import places
from guest import GuestGone
from places import Failure, How

PORT = 18515
LIMIT = 300  # seconds: emulation is slow, and this machine may be busy


@dataclass(frozen=True)
class Setting:
    """The environment of a cell."""

    kernel: str  # the guest's
    mtu: int  # of the link
    family: int  # of the GIDs: 4 or 6
    server: str  # which end is the server: "host" or "guest"

    def __str__(self):
        client = "guest" if self.server == "host" else "host"
        return (f"{self.kernel}, MTU {self.mtu}, IPv{self.family}, "
                f"{client} to {self.server}")


KERNELS, MTUS, FAMILIES, SERVERS = (
    ("6.1", "6.12"), (1500, 4200), (4, 6), ("host", "guest"))
EVERY_SETTING = [Setting(*s) for s in
                 itertools.product(KERNELS, MTUS, FAMILIES, SERVERS)]
# Five settings in which each pair of values occurs together.
PAIRWISE = [
    Setting(*(values[bit] for values, bit in
              zip((KERNELS, MTUS, FAMILIES, SERVERS), bits)))
    for bits in ((0, 0, 0, 0), (0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 1),
                 (1, 1, 1, 0))
]

# Program -> its options. Each program has at least five, so that it meets
# every pair of settings when each is run in one of PAIRWISE.
_PINGPONG = ("-n 200", "-c -s 1 -n 50", "-c -s 3 -n 50", "-c -s 1001 -n 50",
             "-c -s 4097 -n 50", "-e -n 100", "-c -s 1048576 -n 10")
_BANDWIDTH = ("-s 1 -n 100", "-s 3 -n 100", "-s 1001 -n 100 -b",
              "-s 4097 -n 100", "-s 4097 -n 100 -q 8", "-s 65536 -n 50 -b",
              "-a -n 5")
_LATENCY = ("-s 1 -n 50", "-s 3 -n 50", "-s 1001 -n 50", "-s 4097 -n 50",
            "-a -n 5")
# READs of 8 MB overrun an emulated guest: its rxe requests everything at once,
# loses most of it and recovers by its time-out, again and again.
_READ_BANDWIDTH = _BANDWIDTH[:-1] + ("-s 1048576 -n 10",)
_READ_LATENCY = _LATENCY[:-1] + ("-s 1048576 -n 10",)
_EVENTS = ("-e -s 1001 -n 50", "-e -s 65536 -n 50")
_ATOMIC = tuple(f"-A {kind} {rest}"
                for kind in ("FETCH_AND_ADD", "CMP_AND_SWAP")
                for rest in ("-n 100", "-e -n 50"))
# Losses on UC are not repaired: few messages, and no more in flight than a
# slow guest's socket buffer holds.
_UNRELIABLE_BANDWIDTH = tuple(
    f"-c UC {rest} -t 4" for rest in
    ("-s 1 -n 50", "-s 3 -n 50", "-s 1001 -n 50 -b", "-s 4097 -n 20",
     "-s 16384 -n 5"))
_UNRELIABLE_LATENCY = tuple(f"-c UC {rest}" for rest in _LATENCY[:-1] +
                            ("-s 16384 -n 20",))
# A datagram fits the path MTU, which is 1024 at a link MTU of 1500.
_DATAGRAM_BANDWIDTH = tuple(
    f"-c UD {rest} -t 4 -r 512" for rest in
    ("-s 1 -n 50", "-s 3 -n 50", "-s 64 -n 50 -b", "-s 1001 -n 50",
     "-s 1024 -n 20"))
_DATAGRAM_LATENCY = tuple(
    f"-c UD {rest}" for rest in
    ("-s 1 -n 50", "-s 3 -n 50", "-s 64 -n 50", "-s 1001 -n 50",
     "-s 1024 -n 50"))
PROGRAMS = {
    "ibv_rc_pingpong": _PINGPONG,
    "ibv_uc_pingpong": ("-n 200", "-c -s 1 -n 50", "-c -s 3 -n 50",
                        "-c -s 1001 -n 50", "-c -s 4097 -n 50", "-e -n 100"),
    "ibv_ud_pingpong": ("-n 200", "-c -s 1 -n 50", "-c -s 3 -n 50",
                        "-c -s 1001 -n 50", "-e -n 100"),
    "ibv_srq_pingpong": ("-n 200", "-s 1 -n 50", "-s 1001 -n 50",
                         "-s 4097 -n 50", "-e -n 100", "-q 8 -n 200"),
    "ib_send_bw": _BANDWIDTH + tuple(f"{options} -r 512" for options in
                                     _UNRELIABLE_BANDWIDTH) +
                  _DATAGRAM_BANDWIDTH + _EVENTS,
    "ib_send_lat": _LATENCY + _UNRELIABLE_LATENCY + _DATAGRAM_LATENCY + _EVENTS,
    "ib_write_bw": _BANDWIDTH + _UNRELIABLE_BANDWIDTH,
    "ib_write_lat": _LATENCY + _UNRELIABLE_LATENCY,
    "ib_read_bw": _READ_BANDWIDTH + _EVENTS,
    "ib_read_lat": _READ_LATENCY + _EVENTS,
    "ib_atomic_bw": _ATOMIC + ("-A FETCH_AND_ADD -n 100 -q 8",
                               "-A CMP_AND_SWAP -n 100 -b"),
    "ib_atomic_lat": _ATOMIC + ("-A FETCH_AND_ADD -n 50 -o 1",),
}


def hangs(setting, program, options):
    """perftest's event mode on SENDs sometimes hangs on 6.12, also if both
    ends are the guest's own rxe. On 6.1 it does not."""
    return (setting.kernel == "6.12" and program.startswith("ib_send") and
            "-e" in options.split())


def plan(full):
    """(setting, program, options) of everything that runs."""
    out = []
    turn = 0
    for program, variants in PROGRAMS.items():
        for options in variants:
            settings = EVERY_SETTING if full else [
                PAIRWISE[turn % len(PAIRWISE)]]
            out += [(s, program, options) for s in settings
                    if not hangs(s, program, options)]
            turn += 1
    return out


def await_listen_in_guest(guest, server, port, limit=30, within=""):
    """Waits until a program in the guest listens on a TCP port. `within`: the
    start of a command line that enters its network namespace."""
    status, _ = guest.start(
        f"{within} timeout {limit} sh -c "
        f"'until grep -q \":{port:04X} 0.*:0000 0A\" "
        "/proc/net/tcp /proc/net/tcp6; do sleep 0.02; done'").wait()
    if status:
        status, text = server.wait(1)
        raise Failure(f"the server in the guest does not listen on {port}; "
                      f"exit {status}:\n{text}")


class Ends:
    """Runs a program as server on one end and as client on the other."""

    def __init__(self, runner, network, guest, watch):
        self.runner, self.network, self.guest = runner, network, guest
        self.watch = watch  # detects when the machine stands still
        self.gids = {}

    def device_and_gid(self, end, family):
        if (end, family) not in self.gids:
            if end == "host":
                found = self.runner.device_and_gid(self.network.host, family)
            else:
                side = self.network.guest
                address = side.ipv4 if family == 4 else side.ipv6
                found = "rxe0", self.guest.gid_index(address)
            self.gids[end, family] = found
        return self.gids[end, family]

    def run(self, setting, server_argv, client_argv, port=PORT, limit=LIMIT,
            may_fail=False, options=()):
        """Returns the output of server and client. Each must end, and exit
        with 0 unless `may_fail`. `options` are those of rxe-user run."""
        def host_output(what):
            if may_fail:
                return places.last_words(host, limit)
            return places.finish(host, what, limit)

        def guest_output(what):
            if may_fail:
                return guest.wait(limit)[1]
            return guest.finish(what, limit)

        host = guest = None
        try:
            if setting.server == "host":
                host = self.runner.start(self.network.host, How(), server_argv,
                                         options)
                places.await_listen(host, port)
                guest = self.guest.start(" ".join(client_argv))
                client = guest_output("the client in the guest")
                return host_output("our server"), client
            guest = self.guest.start(" ".join(server_argv))
            await_listen_in_guest(self.guest, guest, port)
            host = self.runner.start(self.network.host, How(), client_argv,
                                     options)
            client = host_output("our client")
            return guest_output("the server in the guest"), client
        except Failure as e:
            said = str(e)
            if host and not host.stdout.closed:
                said += f"\nours {places.last_words(host, 2)}"
            if guest and guest.result is None:
                status, text = guest.wait(2)
                said += f"\nthe guest's exited with {status}:\n{text}"
            elif guest:
                said += "\nthe guest's exited with %d:\n%s" % guest.result
            raise type(e)(said) from e
        finally:
            if host:
                places.end(host)
            if guest:
                guest.end()

    def run_stock(self, setting, program, options, run_options=()):
        example = program.startswith("ibv_")

        def argv(end):
            device, gid = self.device_and_gid(end, setting.family)
            flags = (["-d", device, "-g", str(gid)] if example else
                     ["-d", device, "-x", str(gid), "-F"])
            return [program] + flags + ["-p", str(PORT)] + options.split()

        client = "guest" if setting.server == "host" else "host"
        address = (self.network.host if setting.server == "host"
                   else self.network.guest).ipv4
        server_said, client_said = self.run(
            setting, argv(setting.server), argv(client) + [address],
            options=run_options)
        if not example:
            places.perftest_row(client_said)
            return
        for said in (server_said, client_said):
            if "usec/iter" not in said:
                raise Failure("no result in:\n" + said)
            if "Invalid data" in said:  # it exits with 0 even so
                raise Failure(said)

    def attempt_stock(self, text, setting, program, options):
        """The same, again if this machine stood still meanwhile. Returns
        verdict, reason and seconds. `text` describes the run."""
        why, seconds = self.watch.attempt(
            text, lambda: self.run_stock(setting, program, options), GuestGone)
        return "ok" if why is None else "failed", why or "", seconds

    def packets(self):
        """Packets that the host's end of the link has sent and received."""
        link, = json.loads(self.network.ip("-s", "-j", "link", "show", "tap0"))
        return sum(link["stats64"][way]["packets"] for way in ("rx", "tx"))

    def _await_traffic(self, packets=2000, limit=30):
        start = self.packets()
        end = time.monotonic() + limit
        while self.packets() < start + packets:
            if time.monotonic() > end:
                raise Failure(f"no traffic within {limit} s")
            time.sleep(0.01)

    def run_killed(self, setting, victim):
        """The program of one end ("host" or "guest") is killed during a
        transfer: the other one ends by itself, and a new pair works."""
        def argv(end):
            device, gid = self.device_and_gid(end, setting.family)
            return ["ib_write_bw", "-d", device, "-x", str(gid), "-F", "-p",
                    str(PORT), "-s", "65536", "-D", "60"]

        host = guest = None
        try:
            if setting.server == "host":
                host = self.runner.start(self.network.host, How(), argv("host"))
                places.await_listen(host, PORT)
                guest = self.guest.start(
                    " ".join(argv("guest") + [self.network.host.ipv4]))
            else:
                guest = self.guest.start(" ".join(argv("guest")))
                await_listen_in_guest(self.guest, guest, PORT)
                host = self.runner.start(
                    self.network.host, How(),
                    argv("host") + [self.network.guest.ipv4])
            self._await_traffic()
            if victim == "host":
                places.end(host)
                status, said = guest.wait(LIMIT)
                if status is None:
                    raise Failure(f"the guest's program hangs:\n{said}")
            else:
                guest.end()
                try:
                    host.communicate(timeout=LIMIT)
                except subprocess.TimeoutExpired:
                    raise Failure("our program hangs") from None
        finally:
            if host:
                places.end(host)
            if guest:
                guest.end()
        self.run_stock(setting, "ibv_rc_pingpong", "-c -s 4097 -n 50")
