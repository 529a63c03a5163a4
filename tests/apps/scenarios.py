"""Scenarios of several pairs at once: many pairs, kills, and leftovers."""

import dataclasses
import os
import signal
import subprocess
import sys
import time

import connecting
import places
from places import Failure, How

PAIRS = 8


def _start_pair(runner, place, how, port, server_argv, client_argv):
    server = runner.start(place.server, how, server_argv)
    places.await_listen(server, port)
    client = runner.start(place.client, how, client_argv)
    return server, client


def _write_bw(runner, place, how, port, seconds):
    """Starts a timed ib_write_bw pair."""
    ds, gs = runner.device_and_gid(place.server, how.family)
    dc, gc = runner.device_and_gid(place.client, how.family)
    common = ["-F", "-p", str(port), "-D", str(seconds), "-s", "65536"]
    server = ["ib_write_bw", "-d", ds, "-x", str(gs)] + common
    client = ["ib_write_bw", "-d", dc, "-x", str(gc)] + common
    return _start_pair(runner, place, how, port, server,
                       client + [place.server.ipv4])


def _processes(name):
    """Ids of the processes that run the program `name`."""
    out = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as f:
                if f.read().strip() == name[:15]:
                    out.append(int(pid))
        except OSError:
            pass
    return out


def _broker_of(place):
    inside = set(map(int, places.sh("ip", "netns", "pids",
                                    place.server.netns).split()))
    found = [p for p in _processes(places.BROKER) if p in inside]
    if len(found) != 1:
        raise Failure(f"expected one port broker, found {len(found)}")
    return found[0]


def _await_traffic(process, limit=30):
    """Waits until `process` has used CPU time for traffic: it is connected."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if process.poll() is not None:
            raise Failure("ended early:\n" + process.stdout.read())
        try:
            # The exec chain of the namespace has replaced itself by the
            # program: the process id is the same.
            with open(f"/proc/{process.pid}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            if int(fields[11]) + int(fields[12]) > 20:  # 0.2 s of CPU
                return
        except OSError:
            pass
        time.sleep(0.01)
    raise Failure("no traffic")


def eight_pairs_one_killed(runner, place, how=How()):
    """Eight pairs on one address; one client is killed during its transfer.
    The other seven finish, and nothing is left."""
    started = []
    try:
        for i in range(PAIRS):
            started.append(_write_bw(runner, place, how, 18600 + i, 5))
        for _, client in started:
            _await_traffic(client)
        victim_server, victim = started.pop(PAIRS // 2)
        os.killpg(victim.pid, signal.SIGKILL)
        victim.wait()
        # The victim's peer notices by itself (by its TCP connection or its
        # retries). It need not succeed, but it must end.
        try:
            victim_server.communicate(timeout=places.LIMIT)
        except Exception as e:
            raise Failure("the killed client's server hangs") from e
        for server, client in started:
            places.perftest_row(places.finish(client, "a client"))
            places.finish(server, "a server")
    finally:
        for pair in started:
            for process in pair:
                places.end(process)
    places.await_nothing_left(place)


def medium(runner, place, how=How()):
    """With shared memory, `rxe-user stat` shows by what queue pairs send: UDP
    between two network namespaces."""
    how = dataclasses.replace(how, same_host="memory")
    ends = ()
    try:
        ends = _write_bw(runner, place, how, 18760, 5)
        for end in ends:
            _await_traffic(end)
        one = place.server.netns == place.client.netns
        for side, end in zip((place.server, place.client), ends):
            stat = subprocess.run(
                side.prefix() + [runner.rxe_user, "stat", "--json",
                                 str(end.pid)], capture_output=True, text=True)
            expected = "memory" if one else "udp"
            if f'"medium": "{expected}"' not in stat.stdout:
                raise Failure(f"not by {expected}:\n{stat.stdout}{stat.stderr}")
        places.perftest_row(places.finish(ends[1], "the client"))
        places.finish(ends[0], "the server")
    finally:
        for end in ends:
            places.end(end)
    places.await_nothing_left(place)


def broker_killed(runner, place, how=How()):
    """The port broker is killed during transfers. Eight running pairs finish
    with traffic in every interval, and a ninth pair that starts afterwards
    works."""
    started = []
    try:
        for i in range(PAIRS):
            started.append(_write_bw(runner, place, how, 18600 + i, 6))
        for _, client in started:
            _await_traffic(client)
        os.kill(_broker_of(place), signal.SIGKILL)
        started.append(_write_bw(runner, place, how, 18600 + PAIRS, 2))
        for server, client in started:
            row = places.perftest_row(places.finish(client, "a client"))
            if row[3] <= 0:
                raise Failure("a pair moved nothing")
            places.finish(server, "a server")
    finally:
        for pair in started:
            for process in pair:
                places.end(process)
    places.await_nothing_left(place)


def slot_usable_again(runner, place, how=How()):
    """Many short programs one after another, killed or ended: slots are
    reused, because there are fewer slots than programs."""
    device, _ = runner.device_and_gid(place.server, how.family)
    for i in range(6):
        server, client = _write_bw(runner, place, how, 18700 + i, 5)
        try:
            _await_traffic(client)
            os.killpg(client.pid, signal.SIGKILL)
            os.killpg(server.pid, signal.SIGKILL)
        finally:
            places.end(client)
            places.end(server)
    server, client = _write_bw(runner, place, how, 18710, 1)
    try:
        places.perftest_row(places.finish(client, "the last client"))
        places.finish(server, "the last server")
    finally:
        places.end(client)
        places.end(server)
    places.await_nothing_left(place)


def counters_in_sysfs(runner, place, how=How()):
    """perftest reads counters from sysfs: they count what it sends."""
    ds, gs = runner.device_and_gid(place.server, how.family)
    dc, gc = runner.device_and_gid(place.client, how.family)
    messages, size = 1000, 65536
    common = ["-F", "-p", "18720", "-n", str(messages), "-s", str(size)]
    names = ("counters/port_xmit_data", "counters/port_xmit_packets",
             "hw_counters/rdma_writes")
    server, client = _start_pair(
        runner, place, how, 18720,
        ["ib_write_bw", "-d", ds, "-x", str(gs)] + common,
        ["ib_write_bw", "-d", dc, "-x", str(gc), "--report-counters",
         ",".join(names)] + common + [place.server.ipv4])
    try:
        text = places.finish(client, "the client")
        places.finish(server, "the server")
    finally:
        places.end(client)
        places.end(server)
    counted = {}
    for name in names:
        lines = [l for l in text.splitlines() if name + "=" in l]
        if len(lines) != 1:
            raise Failure(f"no {name} in:\n{text}")
        counted[name] = int(lines[0].split("=")[1])
    # Of all programs on this device, in both directions: at least this
    # program's.
    least = dict(zip(names, (messages * size // 4, messages * size // 4096,
                             messages)))
    for name in names:
        if not least[name] <= counted[name] < 3 * least[name] + 100000:
            raise Failure(f"{name} is {counted[name]}, expected "
                          f"{least[name]} or a little more:\n{text}")
    places.await_nothing_left(place)


def without_broker(runner):
    """Without a broker, a process holds the port alone, and its verbs and its
    connection manager share it. In a fresh place."""
    place = places.veth_place(4000)
    try:
        for cell in connecting.core_cells():
            text = connecting.run(runner, place, How(broker=False), cell)
            if text.count("owns UDP port 4791 exclusively") != 1:
                raise Failure(f"not one line of the port:\n{text}")
    finally:
        place.close()


def ended_run(runner):
    """A signal that ends this program while it runs something leaves neither
    its namespace nor a process in it."""
    here = os.path.dirname(os.path.abspath(__file__))
    prefix = os.path.dirname(os.path.dirname(runner.rxe_user))
    run = subprocess.Popen(
        [sys.executable, os.path.join(here, "run"), prefix, "--only",
         "loopback: root, IPv4: ib_"], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        first = run.stdout.readline()  # the next one is starting
        mine = f"rxeu-{run.pid}-"
        names = [n for n in os.listdir("/run/netns") if n.startswith(mine)]
        inodes = {places.namespace_inode(name) for name in names}
        if not names or not first.startswith("ok"):
            raise Failure(f"it does not run: {first}{names}")
        run.send_signal(signal.SIGTERM)
        status = run.wait(timeout=places.LIMIT)
        if status != 128 + signal.SIGTERM:
            raise Failure(f"it exited with {status}")
        left = [n for n in os.listdir("/run/netns") if n.startswith(mine)]
        if left:
            raise Failure("left behind: " + ", ".join(left))
        end_time = time.monotonic() + places.LIMIT
        while pids := places.processes_in(inodes):
            if time.monotonic() > end_time:
                raise Failure(f"processes left behind: {pids}")
            time.sleep(0.05)
    finally:
        places.end(run)


ALL = (counters_in_sysfs, medium, eight_pairs_one_killed, broker_killed,
       slot_usable_again)
