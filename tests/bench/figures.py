"""Measures the figures: stock perftest on our device, the raw references, and
our small verbs program. Each function returns a Sample.

rows.py decides what is measured, report.py what it means.
"""

import collections
import concurrent.futures
import json
import os
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(0, os.path.join(HERE, "..", "apps"))
import places
from places import Failure

PROGRAMS = os.path.join(ROOT, "bazel-bin", "tests", "bench")
LIMIT = 300  # seconds until a running program counts as failed
IDLE_SECONDS = 4  # for which an idle process is watched
# The machine counts as changed if passing a word between cores takes FAR times
# as long as usual in the last REMEMBERED measurements, or the inverse (virtual
# processors on one real core). A figure from then is repeated, up to RETAKES
# times.
FAR, REMEMBERED, RETAKES = 1.6, 99, 10
ORDINARY_RMEM_MAX = 212992  # bytes; the kernel's default
RMEM_MAX = "/proc/sys/net/core/rmem_max"


class Skip(Exception):
    """A row that cannot be measured here; the text says why."""


@dataclass
class Sample:
    """One figure and its cost. CPU time is that of all processes, polling and
    setup included."""

    value: float
    messages: float = 0  # of latencies: round trips
    bytes: float = 0
    cpu_s: float = 0
    instructions: float = 0
    percentiles: list = None  # of latencies: [[percent, us], ...]
    idle: dict = None  # the result of idle()


def perf_counts_instructions():
    if not shutil.which("perf"):
        return False
    done = subprocess.run(["perf", "stat", "-x,", "-e", "instructions", "--",
                           "true"], capture_output=True, text=True)
    return done.returncode == 0 and bool(
        re.search(r"^\d+,.*instructions", done.stderr, re.M))


class BenchRunner(places.Runner):
    """Runs programs on our device; with perf stat into a folder if `counting`.
    """

    counting = None

    def count_argv(self):
        if not self.counting:
            return []
        handle, path = tempfile.mkstemp(dir=self.counting)
        os.close(handle)
        return ["perf", "stat", "-x,", "-e", "instructions", "-o", path, "--"]

    def argv(self, side, how, argv, options=()):
        # After the namespace's prefix: the server's port is looked up in the
        # namespace of the process that we started.
        whole = super().argv(side, how, argv, options)
        at = len(side.prefix())
        return whole[:at] + self.count_argv() + whole[at:]


class Turns:
    """Measurements that are repeated in turn with others."""

    def __init__(self):
        self.turn = 0  # increments; a reference is measured once for each value
        self.core_to_core_ns = collections.deque(maxlen=REMEMBERED)
        self.retaken = 0  # figures that were not kept
        self._memo = {}

    def measured(self, measure):
        """A Sample from a time when the machine was in its usual state, if
        that occurs."""
        # One measurement for each figure: the many of a waiting loop would
        # make the unusual state the usual one.
        before = self._core_to_core_ns()
        self.core_to_core_ns.append(before)
        for _ in range(RETAKES):
            if self._is_usual(before):
                sample = self.sampled(measure)
                if self._is_usual(self._core_to_core_ns()):
                    return sample
                self.retaken += 1
            else:
                time.sleep(1)  # the host may move us again
            before = self._core_to_core_ns()
        return self.sampled(measure)

    def sampled(self, measure):
        return measure(self)

    def usual_core_to_core_ns(self):
        """0 if there is only one processor, or nothing was measured."""
        return statistics.median(self.core_to_core_ns or [0])

    def _core_to_core_ns(self):
        return reference("core_to_core", [])["round_trip_ns"] or 0

    def _is_usual(self, ns):
        usual = self.usual_core_to_core_ns()
        return usual <= FAR * ns and ns <= FAR * usual

    def once(self, key, measure):
        """The result of `measure` in this turn, measured once."""
        key = (self.turn, key)
        if key not in self._memo:
            self._memo = {k: v for k, v in self._memo.items()
                          if k[0] == self.turn}
            self._memo[key] = self.measured(measure)
        return self._memo[key]


class Bench(Turns):
    """Places, programs and common settings of one run."""

    def __init__(self, set_rmem_max=False):
        super().__init__()
        self.set_rmem_max = set_rmem_max
        self.root = os.geteuid() == 0 and shutil.which("ip") is not None
        self.prefix = places.public_copy_of_out()
        self.runner = BenchRunner(self.prefix)
        self._places = {}

    def close(self):
        places.remove_namespaces()
        shutil.rmtree(self.prefix, ignore_errors=True)

    def how(self, user="root", spin_us=0, lanes=1, memory=False):
        return places.How(user, spin_us=spin_us, lanes=lanes,
                          same_host="memory" if memory else "udp")

    def place(self, name):
        """loopback (the current namespace), veth 1500, tap 9000, or a
        separate loopback for measurements that must not share a port broker:
        idle, user."""
        if name == "loopback":
            side = places.Side()
            return places.Place(name, side, side, 65536)
        if not self.root:
            raise Skip("network namespaces need root and iproute2")
        if name not in self._places:
            kind, *mtu = name.split()
            if kind == "veth":
                place = places.veth_place(int(mtu[0]))
            elif kind == "tap":
                place = places.tap_place(int(mtu[0]),
                                         os.path.join(PROGRAMS, "tap_wire"))
            else:
                place = places.loopback_place(name)
            self._places[name] = place
        return self._places[name]

    def sampled(self, measure):
        """A Sample with the CPU time of its processes."""
        def used():
            u = resource.getrusage(resource.RUSAGE_CHILDREN)
            return u.ru_utime + u.ru_stime

        before = used()
        sample = measure(self)
        sample.cpu_s = used() - before
        return sample

    def counted(self, measure):
        """The same under perf stat, for the instructions only."""
        with tempfile.TemporaryDirectory(prefix="rxe_user-") as folder:
            self.runner.counting = folder
            try:
                sample = measure(self)
            finally:
                self.runner.counting = None
            for name in os.listdir(folder):
                with open(os.path.join(folder, name)) as f:
                    for found in re.findall(r"^(\d+),.*instructions",
                                            f.read(), re.M):
                        sample.instructions += int(found)
        return sample


# --- Ours.


def free_port():
    with socket.socket() as s:
        s.bind(("", 0))
        return s.getsockname()[1]


def _kill(processes):
    for process in processes:
        if process.poll() is None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:  # just ended
                pass


def _perftest(bench, place, argv, how, pairs=1):
    """The output of each of `pairs` clients. They start together when all
    servers listen."""
    options = ("--mlx5",) if "DC" in argv else ()
    ports = [free_port() for _ in range(pairs)]
    server, client = (
        argv + ["-d", device, "-x", str(gid), "-F", "-p"]
        for device, gid in (bench.runner.device_and_gid(side, 4)
                            for side in (place.server, place.client)))
    started, servers = [], []
    # Output is read continuously: with many queue pairs a pipe cannot hold it.
    readers = concurrent.futures.ThreadPoolExecutor(2 * pairs)

    def ended(process, name):
        return readers.submit(places.finish, process, name, LIMIT)

    try:
        for port in ports:
            started.append(bench.runner.start(place.server, how,
                                              server + [str(port)], options))
        for process, port in zip(started, ports):
            places.await_listen(process, port)
        servers = [ended(process, "the server") for process in started]
        for port in ports:
            started.append(bench.runner.start(
                place.client, how, client + [str(port), place.server.ipv4],
                options))
        clients = [ended(process, "the client") for process in started[pairs:]]
        texts = [client.result() for client in clients]
        for server in servers:
            server.result()
        return texts
    except Failure as e:
        _kill(started)
        said = next((str(s.exception()) for s in servers if s.exception()), "")
        raise Failure(f"{e}\n{said}") from e
    finally:
        _kill(started)
        readers.shutdown()
        for process in started:
            places.end(process)


def bandwidth(argv, place="loopback", user="root", pairs=1, seconds=1,
              messages_per_s=False, memory=False):
    """ib_*_bw for some seconds: Gbit/s, or millions of messages a second."""
    argv = argv + ["-D", str(seconds)]
    if seconds >= 4:
        argv += ["-f", str(seconds // 4)]  # margins that do not count

    def measure(bench):
        return bandwidth_sample(
            _perftest(bench, bench.place(place), argv,
                      bench.how(user, memory=memory), pairs),
            messages_per_s)

    return measure


def bandwidth_sample(texts, messages_per_s=False):
    """The combined figure of the clients of ib_*_bw."""
    value = messages = size = 0
    for text in texts:
        row = places.perftest_row(text)
        size = row[0]
        messages += row[1]
        # Bytes and messages a second have two and six decimals there.
        value += row[4] if messages_per_s else row[3] * 2**20 * 8 / 1e9
    if not value:
        raise Failure("nothing measured in:\n" + texts[-1])
    return Sample(value, messages, messages * size)


def latency_sample(text):
    """The figure of a client of ib_*_lat."""
    row = places.perftest_row(text)
    if not row[4]:
        raise Failure("nothing measured in:\n" + text)
    return Sample(row[4], row[1], row[1] * row[0])


def latency(argv, place="loopback", iterations=5000, histogram=False,
            spin_us=0, memory=False):
    """ib_*_lat: the typical latency as perftest shows it, us."""
    argv = argv + ["-n", str(iterations)] + (["-H"] if histogram else [])

    def measure(bench):
        text, = _perftest(bench, bench.place(place), argv,
                          bench.how(spin_us=spin_us, memory=memory))
        sample = latency_sample(text)
        if histogram:
            all_of_them = sorted(float(us) for us in re.findall(
                r"^\s*\d+,\s*([\d.]+)\s*$", text, re.M))
            if not all_of_them:
                raise Failure("no histogram in:\n" + text)
            sample.percentiles = percentiles(all_of_them)
        return sample

    return measure


def percentiles(ordered):
    """In the form of the reference programs."""
    steps = (0, 1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 99, 99.5,
             99.9)
    return [[p, ordered[int(p / 100 * (len(ordered) - 1))]] for p in steps]


def ordinary_user(argv):
    """The same as user nobody, whose receive buffers rmem_max limits."""
    measure_as_nobody = bandwidth(argv, "user", "nobody")

    def measure(bench):
        bench.place("user")
        with open(RMEM_MAX) as f:
            before = int(f.read())
        if before == ORDINARY_RMEM_MAX:
            return measure_as_nobody(bench)
        if not bench.set_rmem_max:
            raise Skip(f"net.core.rmem_max is {before} here, not "
                       f"{ORDINARY_RMEM_MAX}; --set-rmem-max sets it meanwhile")
        # The broker creates the sockets, so the last one must have ended.
        places.await_nothing_left(bench.place("user"))
        try:
            _write(RMEM_MAX, ORDINARY_RMEM_MAX)
            return measure_as_nobody(bench)
        finally:
            _write(RMEM_MAX, before)

    return measure


def _write(path, value):
    with open(path, "w") as f:
        f.write(str(value))


# --- References.


def reference(program, argv, before=()):
    try:
        done = subprocess.run(
            [*before, os.path.join(PROGRAMS, program), "--json", *argv],
            capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise Failure(f"{program} did not end within {LIMIT} s")
    if done.returncode:
        raise Failure(f"{program}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def _reference(bench, program, argv):
    return reference(program, argv, bench.runner.count_argv())


def _ends(bench, name):
    """The two ends of a reference."""
    place = bench.place(name)
    argv = ["--address", place.server.ipv4, "--peer-address",
            place.client.ipv4]
    for option, side in (("--netns", place.server),
                         ("--peer-netns", place.client)):
        if side.netns:
            argv += [option, side.netns]
    return argv


def raw_bandwidth(argv, size, place="loopback", messages_per_s=False):
    """Raw UDP: Gbit/s, or millions of messages of `size` bytes a second."""
    def measure(bench):
        out = _reference(bench, "raw_udp", ["--mode", "bw"] +
                         _ends(bench, place) + argv)
        gbit = out["gbit_per_s"]
        value = gbit * 1e3 / 8 / size if messages_per_s else gbit
        moved = out["payload_bytes"]
        return Sample(value, moved / size, moved)

    return measure


def raw_latency(argv, round_trips=0.5):
    def measure(bench):
        out = _reference(bench, "raw_udp", ["--mode", "latency"] + argv)
        half = out["half_round_trip_us"]
        return Sample(half["p50"] * round_trips * 2, out["round_trips"],
                      percentiles=half["percentiles"])

    return measure


def tcp_bandwidth(size, place="loopback"):
    def measure(bench):
        out = _reference(bench, "raw_tcp", ["--mode", "bw", "--size",
                                            str(size)] + _ends(bench, place))
        moved = out["payload_bytes"]
        return Sample(out["gbit_per_s"], moved / size, moved)

    return measure


def tcp_latency(size):
    def measure(bench):
        out = _reference(bench, "raw_tcp", ["--mode", "latency", "--size",
                                            str(size)])
        half = out["half_round_trip_us"]
        return Sample(half["p50"], out["round_trips"],
                      percentiles=half["percentiles"])

    return measure


def ring_bandwidth(size):
    """Two copies through shared memory, Gbit/s."""
    def measure(bench):
        out = _reference(bench, "raw_ring", ["--size", str(size)])
        moved = out["payload_bytes"]
        return Sample(out["gbit_per_s"], moved / size, moved)

    return measure


# --- Queue pairs, many or idle; threads.


def _start_verbs(bench, place, argv, program="verbs_bench", lanes=1,
                 options=(), **popen):
    device, gid = bench.runner.device_and_gid(place.server, 4)
    return subprocess.Popen(
        bench.runner.argv(place.server, bench.how(lanes=lanes),
                          [os.path.join(PROGRAMS, program), "--device",
                           device, "--gid", str(gid)] + argv, options),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, **popen)


def verbs(argv, field):
    """The figure `field` in the output of verbs_bench."""
    def measure(bench):
        process = _start_verbs(bench, bench.place("loopback"), argv,
                               stdin=subprocess.DEVNULL)
        try:
            text = places.finish(process, "verbs_bench", LIMIT)
        finally:
            places.end(process)
        return Sample(json.loads(text.splitlines()[-1])[field])

    return measure


def _of_mlx5(program, argv, field, size):
    """The figure `field` in the output of a program whose device looks like
    mlx5, and whose messages have `size` bytes."""
    def measure(bench):
        process = _start_verbs(bench, bench.place("loopback"), argv, program,
                               options=("--mlx5",), stdin=subprocess.DEVNULL)
        try:
            text = places.finish(process, program, LIMIT)
        finally:
            places.end(process)
        said = json.loads(text.splitlines()[-1])
        return Sample(said[field], said["messages"], size * said["messages"])

    return measure


def dc_in_turn(targets):
    """The latency of WRITEs by one DC initiator to that many targets in turn;
    0: by an RC queue pair. us."""
    return _of_mlx5("dc_bench", ["--targets", str(targets)], "us", 8)


def signed(signature):
    """WRITEs of 64 KB out of a memory key with block signatures, or without
    ("none"). MB/s."""
    return _of_mlx5("mkey_bench", ["--signature", signature], "MB/s", 65536)


def threads(size, lanes, field, seconds=2):
    """WRITEs of two threads at once, each with its own queue pair: the output
    of threads_bench."""
    argv = ["--threads", "2", "--size", str(size), "--seconds", str(seconds)]

    def measure(bench):
        process = _start_verbs(bench, bench.place("loopback"), argv,
                               "threads_bench", lanes,
                               stdin=subprocess.DEVNULL)
        try:
            text = places.finish(process, "threads_bench", LIMIT)
        finally:
            places.end(process)
        said = json.loads(text.splitlines()[-1])
        messages = sum(said["messages"])
        return Sample(said[field], messages, messages * size)

    return measure


def memory_per_queue_pair(count):
    """Bytes beside the queues: the memory of a queue pair extrapolated to
    depth 0 by a straight line through two depths. Small depths, because pages
    of a large queue are not resident before use."""
    def measure(bench):
        small, large = (
            verbs(["--mode", "memory", "--qps", str(count), "--depth",
                   str(depth)], "bytes_per_qp")(bench).value
            for depth in (8, 16))
        return Sample(2 * small - large)

    return measure


def _scheduled(pids):
    """CPU seconds and context switches of all threads of some processes."""
    cpu = switches = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            try:
                with open(f"/proc/{pid}/task/{task}/schedstat") as f:
                    ran, _, slices = map(int, f.read().split())
            except FileNotFoundError:  # the thread has ended
                continue
            cpu += ran / 1e9
            switches += slices
    return cpu, switches


def idle(what):
    """The cost per second of an idle connected process and the port broker:
    "cpu" (ms) or "wakeups"."""
    def watch(bench):
        place = bench.place("idle" if bench.root else "loopback")
        process = _start_verbs(bench, place, ["--mode", "idle"],
                               stdin=subprocess.PIPE)
        try:
            if process.stdout.readline().strip() != "ready":
                raise Failure("verbs_bench: " + process.stdout.read())
            pids = [process.pid]
            if place.server.netns:  # all processes in it are ours
                pids = places.sh("ip", "netns", "pids",
                                 place.server.netns).split()
            # Here the passing of time is what is measured.
            start = time.monotonic()
            before = _scheduled(pids)
            time.sleep(IDLE_SECONDS)
            after = _scheduled(pids)
            seconds = time.monotonic() - start
            process.stdin.close()
            process.stdin = None
            places.finish(process, "verbs_bench", LIMIT)
        finally:
            places.end(process)
        return Sample(0, idle={
            "cpu": (after[0] - before[0]) * 1e3 / seconds,
            "wakeups": (after[1] - before[1]) / seconds})

    return lambda bench: Sample(bench.once("idle", watch).idle[what])
