"""The faults of the soak test: what is done, for how long, and how links may
react.
"""

import os
import signal
import time

import places
from places import sh

KINDS = ("kill", "stop", "broker", "interface", "address", "mtu", "buffers",
         "two")
# Links recover from shorter outages; after 2.1 s their retries are exhausted.
SHORT = 1.0  # seconds
LONG = 4.0
AFTER = 10.0  # after a fault: time for delayed work to continue


def sockets(side):
    """The number of sockets on port 4791, and the names of Unix sockets."""
    udp = unix = 0
    for table in ("udp", "udp6"):
        for line in sh(*side.prefix(), "cat",
                       f"/proc/net/{table}").splitlines()[1:]:
            udp += line.split()[1].endswith(":12B7")
    for line in sh(*side.prefix(), "cat", "/proc/net/unix").splitlines():
        unix += "@rxe" in line
    return udp, unix


def broker(side):
    """The process ID of the namespace's port broker; None if there is none."""
    for pid in sh("ip", "netns", "pids", side.netns).split():
        try:
            with open(f"/proc/{pid}/cmdline") as f:
                if places.BROKER in f.read().split("\0")[0]:
                    return int(pid)
        except OSError:
            pass  # it has ended
    return None


def broker_descriptors(side):
    pid = broker(side)
    try:
        return len(os.listdir(f"/proc/{pid}/fd")) if pid else None
    except OSError:
        return None


class Faults:
    def __init__(self, soak):
        self.soak = soak
        self.random = soak.random
        self.done = {}

    def order(self):
        """A random order of all kinds."""
        if self.soak.args.no_faults:
            return ["none"]
        kinds = list(self.soak.args.only or KINDS)
        self.random.shuffle(kinds)
        return kinds

    def one(self, kind):
        if kind != "two":
            self.do([kind])
            return
        pairs = [k for k in KINDS if k != "two"]
        self.do(self.random.sample(pairs, 2))

    def do(self, kinds):
        """Injects several faults at once, and undoes them."""
        undo = []
        for kind in kinds:
            self.done[kind] = self.done.get(kind, 0) + 1
            seconds, heal = getattr(self, kind)(several=len(kinds) > 1)
            undo.append((time.monotonic() + seconds, heal))
        undo.sort(key=lambda each: each[0])
        for when, heal in undo:
            self.soak.listen(when - time.monotonic())
            heal()

    def say(self, text):
        self.soak.log(text)

    def excuse(self, choose, seconds, may_break):
        """The links selected by `choose` may stand still for this long, or
        break."""
        now = time.monotonic()
        for link in self.soak.links.links:
            if not choose(link):
                continue
            link.may_stand_until = max(link.may_stand_until,
                                       now + seconds + AFTER)
            if may_break:
                link.may_break_until = max(link.may_break_until,
                                           now + seconds + AFTER)

    def duration(self):
        """The duration of an outage: (seconds, whether links may break)."""
        if self.random.random() < self.soak.long_share:
            return self.random.uniform(LONG, 2 * LONG), True
        return self.random.uniform(0.01, SHORT), False

    def side(self):
        return self.random.choice((self.soak.place.server,
                                   self.soak.place.client))

    # --- Each returns its duration and the function that ends it.

    def none(self, several):
        return 1.0, lambda: None

    def kill(self, several):
        """Kills one of the second processes: the first ones are checked for
        leaks."""
        process = self.random.choice([p for p in self.soak.processes
                                      if p.name.endswith("1")])
        patient = self.random.random() < 0.5
        self.say(f"kill {process.name}" + (", and wait for the others' "
                                           "completions" if patient else ""))
        self.excuse(lambda l: l.uses(process), 2 * LONG, True)
        if process.running():
            self.soak.kill(process, patient)

        def again():
            if not process.running():
                self.soak.start(process)
        return self.random.uniform(0, 0.5), again

    def stop(self, several):
        process = self.random.choice(self.soak.processes)
        seconds, may_break = self.duration()
        self.say(f"stop {process.name} for {seconds:.2f} s")
        self.excuse(lambda l: l.uses(process), seconds, may_break or several)
        if process.running():
            process.signal(signal.SIGSTOP)

        def go_on():
            process.heard_at = time.monotonic()
            if process.running():
                process.signal(signal.SIGCONT)
        return seconds, go_on

    def broker(self, several):
        """Only a link that is connecting notices: sometimes there is one."""
        side = self.side()
        pid = broker(side)
        self.say(f"kill the port broker of {side.ipv4}")
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        if several or self.random.random() < 0.5:
            return self.random.uniform(0, 0.5), lambda: None
        return self.kill(several)

    def interface(self, several):
        side = self.side()
        seconds, may_break = self.duration()
        self.say(f"interface of {side.ipv4} down for {seconds:.2f} s")
        self.excuse(lambda l: True, seconds, may_break or several)
        sh("ip", "-n", side.netns, "link", "set", "veth0", "down")

        def up():
            sh("ip", "-n", side.netns, "link", "set", "veth0", "up")
            self.restore(side)
        return seconds, up

    def restore(self, side):
        """The kernel removes IPv6 addresses of an interface that goes down."""
        sh("ip", "-n", side.netns, "addr", "replace", f"{side.ipv4}/24", "dev",
           "veth0")
        sh("ip", "-n", side.netns, "addr", "replace", f"{side.ipv6}/64",
           "nodad", "dev", "veth0")

    def address(self, several):
        side = self.side()
        address = self.random.choice((f"{side.ipv4}/24", f"{side.ipv6}/64"))
        seconds, may_break = self.duration()
        self.say(f"address {address} gone for {seconds:.2f} s")
        self.excuse(lambda l: True, seconds, may_break or several)
        # An IPv6 address is already gone if its interface is down.
        if f" {address} " in sh("ip", "-n", side.netns, "addr", "show", "dev",
                                "veth0"):
            sh("ip", "-n", side.netns, "addr", "del", address, "dev", "veth0")
        return seconds, lambda: self.restore(side)

    def mtu(self, several):
        side = self.side()
        mtu = self.random.choice((1280, 1500, 4200, 8000))
        seconds, may_break = self.duration()
        self.say(f"MTU of {side.ipv4} {mtu} for {seconds:.2f} s")
        self.excuse(lambda l: True, seconds, may_break or several)
        sh("ip", "-n", side.netns, "link", "set", "veth0", "mtu", str(mtu))

        def back():
            sh("ip", "-n", side.netns, "link", "set", "veth0", "mtu", "9000")
        return seconds, back

    def buffers(self, several):
        """So small that it overflows constantly: slow, but no link breaks."""
        process = self.random.choice(self.soak.processes)
        bytes_ = self.random.choice((4096, 16384, 65536))
        seconds = self.random.uniform(0.1, SHORT)
        self.say(f"receive buffers of {process.name} {bytes_} bytes for "
                 f"{seconds:.2f} s")
        self.excuse(lambda l: l.uses(process), seconds, several)
        if process.running():
            process.tell(do="buffers", bytes=bytes_)

        def back():
            if process.running():
                process.tell(do="buffers", bytes=8 << 20)
        return seconds, back
