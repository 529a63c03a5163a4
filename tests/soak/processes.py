"""The processes of the soak test: each is a soak_peer that gets commands and
sends reports as lines of JSON.
"""

import collections
import json
import os
import selectors
import signal
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
PEER = os.path.join(ROOT, "bazel-bin", "tests", "soak", "soak_peer")
RXE_USER = os.path.join(ROOT, "out", "bin", "rxe-user")


class Process:
    """A process that may be killed and started again; `life` counts the
    starts."""

    def __init__(self, name, side, mode, seed, environment):
        self.name = name
        self.side = side  # places.Side
        self.mode = mode  # poll, wait
        self.seed = seed
        self.environment = environment  # in addition to ours
        self.life = 0
        self.child = None
        self.statistics = {}  # its last report
        self.stopped = False
        self.waited = 0.0  # total time for which it waited for a processor
        self.waits = collections.deque(maxlen=200)  # (when, seconds)

    def note_wait(self, waited):
        """Records the total time for which it has waited for a processor."""
        self.waits.append((time.monotonic(), waited - self.waited))
        self.waited = waited

    def longest_wait(self, since):
        """The longest wait in seconds between two reports."""
        return max((wait for when, wait in self.waits if when > since),
                   default=0.0)

    def start(self):
        self.life += 1
        self.statistics = {}
        self.waited = 0.0
        self.pending = b""
        argv = self.side.prefix() + [RXE_USER, "run", "--", PEER,
                                     str(self.seed + self.life), self.mode]
        self.child = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=dict(os.environ, **self.environment), start_new_session=True)
        os.set_blocking(self.child.stdout.fileno(), False)

    def running(self):
        return self.child is not None

    def tell(self, **command):
        """Sends a command. False if the process is gone."""
        try:
            self.child.stdin.write((json.dumps(command) + "\n").encode())
            self.child.stdin.flush()
            return True
        except BrokenPipeError:
            return False

    def hear(self):
        """Its reports since the last call; None if it has ended."""
        out = []
        while True:
            try:
                got = os.read(self.child.stdout.fileno(), 1 << 16)
            except BlockingIOError:
                break
            if not got:
                return out or None
            self.pending += got
        *lines, self.pending = self.pending.split(b"\n")
        return out + [json.loads(line) for line in lines]

    def signal(self, number):
        os.kill(self.child.pid, number)
        if number == signal.SIGSTOP:
            self.stopped = True
        elif number == signal.SIGCONT:
            self.stopped = False

    def descriptors(self):
        """Its descriptors as text."""
        folder = f"/proc/{self.child.pid}/fd"
        out = []
        for fd in sorted(os.listdir(folder), key=int):
            try:
                out.append(f"{fd}: {os.readlink(f'{folder}/{fd}')}")
            except OSError:
                pass  # closed meanwhile
        return ", ".join(out)

    def stat(self):
        """Its queue pairs and counters as text."""
        if not self.running():
            return "not running"
        return subprocess.run(
            self.side.prefix() + [RXE_USER, "stat", str(self.child.pid)],
            capture_output=True, text=True).stdout

    def reap(self, limit=20):
        """Its exit status when it has ended; it is killed after `limit`."""
        try:
            status = self.child.wait(limit)
        except subprocess.TimeoutExpired:
            self.kill()
            return "none: it did not end"
        self.forget()
        return status

    def kill(self):
        if self.child is None:
            return
        os.kill(self.child.pid, signal.SIGKILL)
        self.child.wait()
        self.forget()

    def forget(self):
        self.child.stdout.close()
        try:
            self.child.stdin.close()
        except BrokenPipeError:
            pass
        self.child = None
        self.stopped = False


class Ears:
    """Reads the reports of all processes."""

    def __init__(self):
        self.selector = selectors.DefaultSelector()

    def add(self, process):
        self.selector.register(process.child.stdout, selectors.EVENT_READ,
                               process)

    def remove(self, process):
        self.selector.unregister(process.child.stdout)

    def hear(self, seconds):
        """(process, report) in order of arrival; None when it has ended."""
        for key, _ in self.selector.select(max(seconds, 0)):
            said = key.data.hear()
            if said is None:
                yield key.data, None
            else:
                for each in said:
                    yield key.data, each
