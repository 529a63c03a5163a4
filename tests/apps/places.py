"""Where programs run: network namespaces, users, and pairs of processes.

Every namespace is created here and removed at the end. Nothing waits for time
to pass: a server is ready when it listens, a program has ended when its
process has. Time limits only turn a hang into a failure.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field

LIMIT = 120  # seconds until a running program counts as failed
NOBODY = 65534
BROKER = "rxe-user-port-broker"


class Failure(Exception):
    """A failed check, with its text."""


def sh(*argv, check=True):
    done = subprocess.run(argv, capture_output=True, text=True)
    if check and done.returncode:
        raise Failure(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


@dataclass
class Side:
    """One end: a namespace (None: the current one), and its address as seen
    from the other end."""

    netns: str = None
    device_of: str = "lo"  # the interface whose device is used
    ipv4: str = "127.0.0.1"
    ipv6: str = "::1"

    def prefix(self):
        return ["ip", "netns", "exec", self.netns] if self.netns else []


@dataclass
class Place:
    """Two ends that reach each other."""

    name: str
    server: Side
    client: Side
    mtu: int
    namespaces: list = field(default_factory=list)
    wire: subprocess.Popen = None  # between taps

    def close(self):
        if self.wire:
            self.wire.stdin.close()
            self.wire.wait()
        for name in self.namespaces:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


made = []  # names of all namespaces, including those of failed places


def remove_namespaces():
    for name in made:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)


def namespace_inode(name):
    """Identifies a network namespace; None: it does not exist."""
    try:
        return os.stat(os.path.join("/run/netns", name)).st_ino
    except FileNotFoundError:
        return None


def processes_in(inodes):
    """Process ids in the network namespaces with these inodes."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}/ns/net").st_ino in inodes:
                found.append(int(pid))
        except OSError:  # it has ended
            pass
    return found


def leave_nothing_behind_on_signals(prefix):
    """On a signal, ends all processes in the namespaces that this program has
    created, brokers included, and removes the namespaces; and `prefix`, unless
    None. Other threads may be about to start a process: without its name no
    process can enter a namespace any more."""
    def leave(number, _frame):
        inodes = {namespace_inode(name) for name in made}
        remove_namespaces()
        for pid in processes_in(inodes):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if prefix:
            shutil.rmtree(prefix, ignore_errors=True)
        os._exit(128 + number)

    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)


def _namespace(tag):
    name = f"rxeu-{os.getpid()}-{tag}"
    sh("ip", "netns", "add", name)
    made.append(name)
    sh("ip", "-n", name, "link", "set", "lo", "up")
    # No duplicate address detection: addresses are usable at once.
    for knob in ("all", "default"):
        sh("ip", "netns", "exec", name, "sh", "-c",
           f"echo 0 > /proc/sys/net/ipv6/conf/{knob}/accept_dad")
    return name


def loopback_place(tag="lo"):
    ns = _namespace(tag)
    # Without this route IPv6 groups on the loopback interface are unreachable.
    sh("ip", "-n", ns, "-6", "route", "add", "local", "ff0e::/16", "dev", "lo",
       "table", "local")
    side = Side(ns)
    return Place("loopback", side, side, 65536, [ns])


def own_address_place():
    """The machine's own address: both ends on one real interface."""
    ns = _namespace("own")
    # The veth peer only provides a carrier: traffic to its own address stays
    # inside.
    sh("ip", "-n", ns, "link", "add", "own0", "type", "veth", "peer", "name",
       "own1")
    for name in ("own0", "own1"):
        sh("ip", "-n", ns, "link", "set", name, "mtu", "1500", "up")
    sh("ip", "-n", ns, "addr", "add", "10.78.1.1/24", "dev", "own0")
    sh("ip", "-n", ns, "addr", "add", "fd78:1::1/64", "nodad", "dev", "own0")
    side = Side(ns, "own0", "10.78.1.1", "fd78:1::1")
    return Place("own address", side, side, 1500, [ns])


def veth_place(mtu):
    a, b = _namespace(f"a{mtu}"), _namespace(f"b{mtu}")
    sh("ip", "-n", a, "link", "add", "veth0", "type", "veth", "peer", "name",
       "veth0", "netns", b)
    return _two_sides(f"veth {mtu}", "veth0", mtu, a, b)


def tap_place(mtu, wire):
    """Two tap interfaces. `wire`: the program that joins them
    (tests/bench/tap_wire)."""
    a, b = _namespace(f"ta{mtu}"), _namespace(f"tb{mtu}")
    process = subprocess.Popen([wire, a, b], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
    # The wire's program ends with its stdin, at the latest when this one ends.
    if not process.stdout.readline():
        raise Failure(f"{wire} has not started")
    place = _two_sides(f"tap {mtu}", "tap0", mtu, a, b)
    place.wire = process
    return place


def _two_sides(name, interface, mtu, a, b):
    """Its namespaces are joined by interfaces of the same name."""
    for ns, last in ((a, "1"), (b, "2")):
        sh("ip", "-n", ns, "link", "set", interface, "mtu", str(mtu), "up")
        sh("ip", "-n", ns, "addr", "add", f"10.78.2.{last}/24", "dev",
           interface)
        sh("ip", "-n", ns, "addr", "add", f"fd78:2::{last}/64", "nodad", "dev",
           interface)
    return Place(name, Side(a, interface, "10.78.2.1", "fd78:2::1"),
                 Side(b, interface, "10.78.2.2", "fd78:2::2"), mtu, [a, b])


def sink_place():
    """An interface that accepts whole segmented sends and frees them, like a
    network card with a free driver. Only the sender is there."""
    ns = _namespace("sink")
    sh("ip", "-n", ns, "link", "add", "sink0", "type", "ifb")
    sh("ip", "-n", ns, "link", "set", "sink0", "mtu", "9000", "up")
    sh("ip", "-n", ns, "addr", "add", "10.78.3.1/24", "dev", "sink0")
    return Place("sink", Side(ns, "sink0", "10.78.3.2"),
                 Side(ns, "sink0", "10.78.3.1"), 9000, [ns])


@dataclass(frozen=True)
class How:
    """User and address family of a run."""

    user: str = "root"
    family: int = 4
    spin_us: int = 0  # RXE_USER_SPIN_US
    lanes: int = 0  # RXE_USER_LANES; 0: the default
    same_host: str = ""  # RXE_USER_SAME_HOST; empty: the default
    broker: bool = True  # False: no broker can be started

    def __str__(self):
        return f"{self.user}, IPv{self.family}"


def public_copy_of_out():
    """A copy of this checkout's out/ that every user can read: the checkout
    may be in a closed home folder."""
    here = os.path.dirname(os.path.abspath(__file__))
    out = os.path.join(here, "..", "..", "out")
    if not os.path.exists(os.path.join(out, "bin", "rxe-user")):
        raise SystemExit("tests/apps/run: no out/; run tools/dev build first")
    prefix = tempfile.mkdtemp(prefix="rxe_user-")
    os.chmod(prefix, 0o755)
    # Only what users get; out/ also holds other builds and test output.
    for name in ("bin", "include", "lib", "libexec"):
        shutil.copytree(os.path.join(out, name), os.path.join(prefix, name))
    return prefix


def make_xrc_files():
    """The programs name their XRC domains by fixed files in /tmp. The first
    user would own them and exclude others."""
    for name in ("xrc_domain", "xrc_domain_client", "xrc_domain_server"):
        path = os.path.join("/tmp", name)
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        os.chmod(path, 0o644)


def find_gid(devices, netdev, address):
    """The name of the device on `netdev`, and the index of the GID of
    `address`, from the output of `rxe-user devices --json`."""
    for device in devices:
        if device["netdev"] != netdev:
            continue
        for gid in device["gids"]:
            if gid["address"] == address:
                return device["name"], gid["index"]
    raise Failure(f"no device on {netdev} has {address}")


class Runner:
    """Runs programs on the device installed under `prefix`."""

    def __init__(self, prefix):
        self.rxe_user = os.path.join(prefix, "bin", "rxe-user")

    def argv(self, side, how, argv, options=()):
        out = side.prefix()
        if how.user != "root":
            out += ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}",
                    "--clear-groups"]
        if how.spin_us:
            out += ["env", f"RXE_USER_SPIN_US={how.spin_us}"]
        if how.same_host:
            out += ["env", f"RXE_USER_SAME_HOST={how.same_host}"]
        if how.lanes:
            out += ["env", f"RXE_USER_LANES={how.lanes}"]
        if not how.broker:
            out += ["env", "RXE_USER_BROKER=/nonexistent"]
        return out + [self.rxe_user, "run", *options, "--"] + list(argv)

    def start(self, side, how, argv, options=()):
        """Starts a program. `options` are those of rxe-user run."""
        return subprocess.Popen(
            self.argv(side, how, argv, options), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True, cwd="/")

    def devices(self, side):
        argv = side.prefix() + [self.rxe_user, "devices", "--json"]
        done = subprocess.run(argv, capture_output=True, text=True)
        if done.returncode:
            raise Failure(f"rxe-user devices: {done.stderr.strip()}")
        return json.loads(done.stdout)["devices"]

    def device_and_gid(self, side, family):
        """Name of the side's device, and the index of its address's GID."""
        return find_gid(self.devices(side), side.device_of,
                        side.ipv4 if family == 4 else side.ipv6)


def listens(pid, port):
    """Whether a process listens on `port` in the network namespace of `pid`."""
    want = f":{port:04X}"
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{table}") as lines:
                for line in lines:
                    f = line.split()
                    if f[1].endswith(want) and f[3] == "0A":
                        return True
        except OSError:
            return False
    return False


def await_listen(process, port, limit=30):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if process.poll() is not None:
            raise Failure("the server ended before it listened:\n" +
                          process.stdout.read())
        if listens(process.pid, port):
            return
        time.sleep(0.005)
    raise Failure(f"the server did not listen on {port} within {limit} s")


def await_udp(process, port, limit=30):
    """Waits until a UDP socket is bound to `port` in the namespace of
    `process`."""
    want = f":{port:04X}"
    end_time = time.monotonic() + limit
    while time.monotonic() < end_time:
        for table in ("udp", "udp6"):
            with open(f"/proc/{process.pid}/net/{table}") as lines:
                if any(line.split()[1].endswith(want) for line in lines):
                    return
        if process.poll() is not None:
            raise Failure("it ended before it had a socket:\n" +
                          process.stdout.read())
        time.sleep(0.005)
    raise Failure(f"no UDP socket on {port} within {limit} s")


def end(process):
    """Ends a process of ours and its children."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.stdout.close()
    process.wait()


def last_words(process, patience=10):
    """The state and the output of a process, for reports."""
    if process.stdout.closed:
        return "has been read"
    try:
        text, _ = process.communicate(timeout=patience)
        return f"exited with {process.returncode}:\n{text}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        return f"did not end; it had said:\n{text}"


def finish(process, what, limit=LIMIT):
    try:
        text, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        raise Failure(f"{what} did not end within {limit} s")
    if process.returncode:
        raise Failure(f"{what} exited with {process.returncode}:\n{text}")
    return text


def finish_once_heard(start_client, server, nobody_listens):
    """Finishes the client that `start_client` starts, and starts it again while
    it ends with `nobody_listens` (a pattern) and the server runs. Returns its
    output."""
    end_time = time.monotonic() + LIMIT
    while True:
        client = start_client()
        try:
            return finish(client, "the client")
        except Failure as e:
            if (not nobody_listens.search(str(e)) or
                    server.poll() is not None or time.monotonic() > end_time):
                raise
            time.sleep(0.05)
        finally:
            end(client)


def perftest_row(text):
    """The last result row of a perftest table, as numbers."""
    rows = [l for l in text.splitlines() if re.match(r"^\s*\d+\s+\d+", l)]
    if not rows:
        raise Failure("no result row in:\n" + text)
    return [float(x) for x in re.findall(r"[\d.]+", rows[-1])]


def leftovers(side):
    """What the device has left in a namespace: a list of lines."""
    prefix = side.prefix()
    found = []
    for table in ("udp", "udp6"):
        for line in sh(*prefix, "cat", f"/proc/net/{table}").splitlines()[1:]:
            if line.split()[1].endswith(":12B7"):
                found.append(f"{table} socket {line.split()[1]}")
    for line in sh(*prefix, "cat", "/proc/net/unix").splitlines():
        if "@rxe" in line:
            found.append("unix socket " + line.split()[-1])
    if side.netns:
        for pid in sh("ip", "netns", "pids", side.netns).split():
            found.append("process " + pid)
    return found


def await_nothing_left(place, limit=20):
    """Waits until nothing is left, a few seconds after the last program."""
    end_time = time.monotonic() + limit
    while True:
        left = leftovers(place.server) + leftovers(place.client)
        if not left:
            return
        if time.monotonic() > end_time:
            raise Failure("left behind: " + ", ".join(left))
        time.sleep(0.05)
