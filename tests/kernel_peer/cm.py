"""Stock programs that connect by the RDMA CM: rdmacm-utils, also over
rsockets, and perftest -R. One end uses the kernel's CM, rxe and Debian's
librdmacm in the guest, the other end our device.
"""

import hashlib
import os
import re
import tempfile
import time

import connecting
import loss
import places
from connecting import CmCell
from guest import GuestGone
from places import Failure, How
from stock import PAIRWISE, EVERY_SETTING, LIMIT, Setting

PROGRAMS = ["rping", "ucmatose", "udaddy", "rdma_server", "rdma_client",
            "rstream", "riostream", "rcopy"]

# Both ends know how much is sent, and verify received data (-T v). riostream
# checks a transfer when its last byte has changed, and rxe may copy the last
# bytes of a packet first: so no -T v if one packet is the whole transfer.
_RSOCKETS = [
    "rstream -T v -I 20 -C 10 -S 10000",
    "rstream -T v -T b -I 20 -C 10 -S 4000 -B 8192",
    "rstream -T v -T n -I 20 -C 10 -S 10000",
    "rstream -T v -I 5 -C 5 -S 300000",
    "rstream -T v -T a -I 20 -C 10 -S 4000",
    "riostream -I 20 -C 10 -S 2000",
    "riostream -T v -I 20 -C 10 -S 20000",
    "riostream -T v -T b -I 20 -C 10 -S 20000",
    "riostream -T v -T a -I 20 -C 5 -S 100000",
    "riostream -T v -T n -I 20 -C 10 -S 20000",
]

CELLS = [
    # The server's output is read when it has ended: no -v there.
    CmCell("rping -s -a @ -C 100 -S 4096", "rping -c -a @ -C 100 -S 4096 -v"),
    CmCell("rping -s -a @ -C 100 -S 65535 -V",
           "rping -c -a @ -C 100 -S 65535 -V"),
    CmCell("rping -s -a @ -q -C 20", "rping -c -a @ -q -C 20"),
    CmCell("ucmatose -b @", "ucmatose -s @"),
    CmCell("ucmatose -b @ -c 50 -C 20 -S 5000 -m",
           "ucmatose -s @ -c 50 -C 20 -S 5000 -m"),
    CmCell("udaddy -b @ -C 20 -S 1000", "udaddy -s @ -C 20 -S 1000"),
    CmCell("udaddy -b @ -c 20", "udaddy -s @ -c 20"),
    CmCell("rdma_server -s @", "rdma_client -s @"),
] + [CmCell(f"{line} -b @", f"{line} -s @") for line in _RSOCKETS] + [
    CmCell(f"{line} -R -F", f"{line} -R -F @", ipv4_only=True)
    for line in ("ib_send_bw -n 50", "ib_write_bw -n 50 -q 4",
                 "ib_read_lat -n 50")
]

# Runs until one of the two is killed.
KILLED = CmCell("rping -s -a @", "rping -c -a @")
ROCE_PORT = 4791
OTHER_PORT = 7175  # rping's own is the one before
AFTERWARDS = CELLS[2]

# Retransmission of CM messages and of later data.
BAD_NETWORK = "loss 5%"
BAD_NETWORK_CELL = CmCell("ucmatose -b @ -c 20 -C 10 -S 5000",
                          "ucmatose -s @ -c 20 -C 10 -S 5000")
BAD_NETWORK_SETTING = Setting("6.12", 4200, 6, "guest")


# For rcopy: its addresses cannot be IPv6.
RCOPY_SETTINGS = [Setting("6.1", 1500, 4, "guest"),
                  Setting("6.12", 4200, 4, "host")]

# For refusing and killing; one setting suffices.
SPECIAL_SETTING = Setting("6.12", 1500, 4, "host")


def _hangs_up_early(setting, cell):
    """rdma-core's rpoll reports POLLHUP with unread data once the peer has
    closed, and rstream's client takes that for an error: as client it must be
    faster than its server. Ours reports the data first."""
    return cell.client.startswith("rstream -T v -T a") and (
        setting.server == "host")


def plan(full):
    """(setting, cell) of everything that runs. Without `full` each cell runs
    once, and the cells together cover both kernels and both directions."""
    if not full:
        out = []
        for turn, cell in enumerate(CELLS):
            settings = [s for s in PAIRWISE if not _hangs_up_early(s, cell)]
            out.append((settings[turn % len(settings)], cell))
        return out
    return [(setting, cell) for cell in CELLS for setting in EVERY_SETTING
            if (setting.family == 4 or not cell.ipv4_only) and
            not _hangs_up_early(setting, cell)]


class _Program:
    """A program that runs at one end: "host" or "guest"."""

    def __init__(self, ends, end, argv):
        self.host = self.guest = None
        if end == "host":
            self.host = ends.runner.start(ends.network.host, How(), argv)
        else:
            self.guest = ends.guest.start(" ".join(argv))

    def runs(self):
        return (self.host.poll() is None if self.host
                else self.guest.runs())

    def finish(self, what, limit=LIMIT):
        return (places.finish(self.host, what, limit) if self.host
                else self.guest.finish(what, limit))

    def last_words(self, patience):
        """Like places.last_words, and ends the program."""
        if self.host:
            return places.last_words(self.host, patience)
        status, said = self.guest.wait(patience)
        return f"exited with {status}:\n{said}"

    def end(self):
        if self.host:
            places.end(self.host)
        else:
            self.guest.end()


def _argv(ends, setting, cell, line):
    side = (ends.network.host if setting.server == "host"
            else ends.network.guest)
    address = (side.ipv4 if setting.family == 4 or cell.ipv4_only
               else side.ipv6)
    return [re.sub("^@", address, word) for word in line.split()]


def _client_of(setting):
    return "guest" if setting.server == "host" else "host"


def _await_listener_in_guest(ends, server, limit=60):
    """Waits until a program in the guest listens. Nothing shows that ours
    does: its client is refused and started again."""
    status, _ = ends.guest.start(
        f"timeout {limit} sh -c 'until rdma resource show cm_id | "
        "grep -q LISTEN; do sleep 0.05; done'").wait()
    if status:
        raise Failure("the server in the guest does not listen: "
                      f"{server.last_words(1)}")


class _Refused(Failure):
    """The client's connection request had no listener."""


def run_cell(ends, setting, cell):
    """Runs server and client, both of which must succeed. perftest makes its
    connections one after another, and the server may listen for the next one
    too late. Our CM waits a moment before it refuses, the kernel's does not:
    then both programs are started again. In an emulated guest ib_read_lat's
    server is too late more often than not."""
    for _ in range(20):
        try:
            return _run_once(ends, setting, cell)
        except _Refused as e:
            refused = e
    raise refused


def _run_once(ends, setting, cell):
    server = _Program(ends, setting.server,
                      _argv(ends, setting, cell, cell.server))
    try:
        if setting.server == "guest":
            _await_listener_in_guest(ends, server)
        _run_client(ends, setting, cell, server)
        server.finish("the server")
    except (GuestGone, _Refused):
        raise
    except Failure as e:
        raise Failure(f"{e}\nthe server {server.last_words(2)}") from e
    finally:
        server.end()


def _run_client(ends, setting, cell, server):
    end_time = time.monotonic() + LIMIT
    while True:
        client = _Program(ends, _client_of(setting),
                          _argv(ends, setting, cell, cell.client))
        try:
            return client.finish("the client")
        except GuestGone:
            raise
        except Failure as e:
            if not connecting.NOBODY_LISTENS.search(str(e)):
                raise
            if setting.server == "guest":
                raise _Refused(str(e)) from e
            if not server.runs() or time.monotonic() > end_time:
                raise
        finally:
            client.end()


def attempt(ends, text, setting, cell):
    """Runs a cell, again if this machine stood still meanwhile. Returns
    verdict, reason and seconds."""
    why, seconds = ends.watch.attempt(
        text, lambda: run_cell(ends, setting, cell), GuestGone)
    return "ok" if why is None else "failed", why or "", seconds


def run_refused(ends, setting):
    """Without a listener the client is refused and ends. Another program
    listens elsewhere, because without any program our device does not exist."""
    server = _Program(ends, setting.server, _argv(
        ends, setting, KILLED, f"{KILLED.server} -p {OTHER_PORT}"))
    try:
        if setting.server == "guest":
            _await_listener_in_guest(ends, server)
        else:
            places.await_udp(server.host, ROCE_PORT)
        _run_refused_client(ends, setting)
    finally:
        server.end()


def _run_refused_client(ends, setting):
    client = _Program(ends, _client_of(setting),
                      _argv(ends, setting, KILLED, KILLED.client))
    try:
        client.finish("the client", places.LIMIT)
    except GuestGone:
        raise
    except Failure as e:
        if "RDMA_CM_EVENT_REJECTED, error 8" in str(e):
            return
        raise
    finally:
        client.end()
    raise Failure("the client has connected")


def _transfers(ends, client, packets=500, limit=LIMIT):
    """Waits for traffic. False if the client has ended instead."""
    want = ends.packets() + packets
    end_time = time.monotonic() + limit
    while ends.packets() < want:
        if not client.runs():
            return False
        if time.monotonic() > end_time:
            raise Failure(f"no traffic within {limit} s")
        time.sleep(0.02)
    return True


def _start_endless_client(ends, setting, server):
    """Starts a client without end and waits until it has connected."""
    end_time = time.monotonic() + LIMIT
    while True:
        client = _Program(ends, _client_of(setting),
                          _argv(ends, setting, KILLED, KILLED.client))
        try:
            if _transfers(ends, client):
                return client
            said = client.last_words(2)
            if (not connecting.NOBODY_LISTENS.search(said) or
                    not server.runs() or time.monotonic() > end_time):
                raise Failure(f"the client {said}")
        except BaseException:
            client.end()
            raise
        client.end()


def run_killed(ends, setting, victim):
    """The program of one end ("host" or "guest") is killed while connected:
    the other one notices and ends, and a new pair works."""
    client = None
    server = _Program(ends, setting.server,
                      _argv(ends, setting, KILLED, KILLED.server))
    try:
        if setting.server == "guest":
            _await_listener_in_guest(ends, server)
        client = _start_endless_client(ends, setting, server)
        killed, left = ((server, client) if setting.server == victim
                        else (client, server))
        killed.end()
        said = left.last_words(places.LIMIT)
        # rxe may refuse packets (remote operational error) while the memory of
        # its program is freed, before the kernel disconnects.
        told = "DISCONNECT EVENT" in said or (
            victim == "guest" and "cq completion failed status 11" in said)
        if not told:
            raise Failure(f"the other end is not told: it {said}")
    finally:
        server.end()
        if client:
            client.end()
    run_cell(ends, setting, AFTERWARDS)


def _checksum_in_guest(ends, path):
    return ends.guest.check(f"sha256sum {path}").split()[0]


def run_rcopy(ends, setting):
    """Transfers a file of odd length and compares its checksum."""
    size = 3 * 1000 * 1000 + 1
    server = None
    with tempfile.TemporaryDirectory(prefix="rxe_user-rcopy-") as folder:
        try:
            server = _Program(ends, setting.server, ["rcopy"])
            if setting.server == "guest":
                _await_listener_in_guest(ends, server)
                sent, received = f"{folder}/sent", "/tmp/received"
                data = os.urandom(size)
                with open(sent, "wb") as f:
                    f.write(data)
                want = hashlib.sha256(data).hexdigest()
            else:
                sent, received = "/tmp/sent", f"{folder}/received"
                ends.guest.check(f"head -c {size} /dev/urandom > {sent}")
                want = _checksum_in_guest(ends, sent)
            cell = CmCell("rcopy", f"rcopy {sent} @:{received}",
                          ipv4_only=True)
            _run_client(ends, setting, cell, server)
            if setting.server == "guest":
                found = _checksum_in_guest(ends, received)
            else:
                with open(received, "rb") as f:
                    found = hashlib.sha256(f.read()).hexdigest()
            if found != want:
                raise Failure("what has arrived is not what was sent")
        finally:
            if server:
                server.end()
            ends.guest.check("rm -f /tmp/sent /tmp/received")


def run_lossy(ends, setting):
    loss.impair(ends.guest, BAD_NETWORK)
    try:
        run_cell(ends, setting, BAD_NETWORK_CELL)
        lost = sum(loss.through_netem(ends.guest, device)[1]
                   for device in loss.DEVICES)
        if lost == 0:
            raise Failure("netem has dropped nothing")
    finally:
        loss.repair(ends.guest)
