"""A guest under QEMU, whose eth0 and rxe0 are behind a tap interface of a
network namespace, and commands in it.

Without KVM: the guest is emulated, which works everywhere and is slow. Nothing
waits for time to pass: the guest reports when it is up, and when a command has
ended. Time limits only turn a hang into a failure.
"""

import base64
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import time

import image
from places import Failure, Side, made, sh

BOOT_LIMIT = 40  # seconds
COMMAND_LIMIT = 120
SHELLS = 4  # commands at once
# The start of a kernel's crash message.
CRASH = re.compile(r"BUG:|Oops|general protection|Kernel panic|"
                   r"unable to handle|stack segment|invalid opcode")


class GuestGone(Failure):
    """The guest has ended or does not respond: a new one is needed."""


class Network:
    """A namespace with the tap interface of the guest. The tap is the host's
    end: our device is on it."""

    def __init__(self, tag="peer"):
        self.namespace = f"rxeu-{os.getpid()}-{tag}"
        sh("ip", "netns", "add", self.namespace)
        made.append(self.namespace)
        self.ip("link", "set", "lo", "up")
        self.ip("tuntap", "add", "dev", "tap0", "mode", "tap")
        self.ip("addr", "add", "10.77.0.1/24", "dev", "tap0")
        self.ip("addr", "add", "fd77::1/64", "dev", "tap0", "nodad")
        self.ip("link", "set", "tap0", "mtu", "1500", "up")
        self.host = Side(self.namespace, "tap0", "10.77.0.1", "fd77::1")
        self.guest = Side(None, "eth0", "10.77.0.2", "fd77::2")

    def ip(self, *argv):
        return sh("ip", "-n", self.namespace, *argv)

    def set_mtu(self, guest, mtu):
        """Sets the MTU of both ends; RoCE's MTU follows from it."""
        self.ip("link", "set", "tap0", "mtu", str(mtu))
        guest.check(f"ip link set eth0 mtu {mtu}")

    def close(self):
        sh("ip", "netns", "del", self.namespace, check=False)


class Command:
    """A command that runs in the guest."""

    def __init__(self, guest, shell, text):
        self.guest, self.shell = guest, shell
        self.received = b""
        self.result = None  # (exit status, output)
        line = base64.b64encode(text.encode()) + b"\n"
        try:
            guest.sockets[shell].sendall(line)
        except OSError:
            raise guest.gone() from None

    def _receive(self, limit):
        """Reads until the command has ended; False after `limit` seconds."""
        end = time.monotonic() + limit
        s = self.guest.sockets[self.shell]
        while self.result is None:
            left = end - time.monotonic()
            if left <= 0:
                return False
            s.settimeout(left)
            try:
                data = s.recv(65536)
            except socket.timeout:
                return False
            if not data:
                raise self.guest.gone()
            self.received += data
            m = re.search(rb"\x01(\d+)\n$", self.received)
            if m:
                text = self.received[:m.start()].decode(errors="replace")
                self.result = int(m.group(1)), text
                self.guest.idle.put(self.shell)
        return True

    def runs(self):
        """Whether it has not ended yet."""
        return not self._receive(0.02)

    def wait(self, limit=COMMAND_LIMIT):
        """Exit status and output (both streams); (None, output so far) if it
        was killed after `limit` seconds."""
        if self._receive(limit):
            return self.result
        said = self.received.decode(errors="replace")
        self.end()
        return None, said

    def finish(self, what, limit=COMMAND_LIMIT):
        """Returns the output of a command that must succeed."""
        status, text = self.wait(limit)
        if status is None:
            raise Failure(f"{what} did not end within {limit} s; it said:\n"
                          f"{text}")
        if status:
            raise Failure(f"{what} exited with {status}:\n{text}")
        return text

    def end(self):
        """Kills it if it still runs."""
        if self.result is None and not self.guest.is_gone:
            # The command may just be ending.
            self.guest.check(
                f"kill -9 -$(cat /run/command.{self.shell}) || true")
            if not self._receive(30):
                raise GuestGone("a command in the guest cannot be ended")


class Guest:
    """A running guest. `memory` in MB; the guest sees the folder `share` as
    /host."""

    def __init__(self, network, kernel_folder, initramfs, work, mtu=1500,
                 cpus=2, memory=1024, share=None):
        self.log = os.path.join(work, "console.log")
        self.is_gone = False
        self.idle = queue.SimpleQueue()
        mine, theirs = zip(*(socket.socketpair() for _ in range(SHELLS)))
        self.sockets = mine
        append = ["console=ttyS0", "quiet", "loglevel=4", "panic=-1",
                  "oops=panic", "no_timer_check", "tsc=reliable",
                  "mitigations=off", "random.trust_cpu=on", "rdinit=/init",
                  f"peer.ipv4={network.guest.ipv4}/24",
                  f"peer.ipv6={network.guest.ipv6}/64", f"peer.mtu={mtu}"]
        argv = network.host.prefix() + [
            "setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64",
            "-machine", "q35", "-accel", "tcg,thread=multi,tb-size=512",
            # Emulating the first three is slower than doing without them.
            # After cmpxchg16b, QEMU 7.2 may leave the operand of an earlier
            # compare in the flags. An interrupt then returns to a mode that
            # depends on these bits, and the guest's kernel crashes.
            "-cpu", "max,-pclmulqdq,-erms,-fsrm,-cx16",
            "-smp", str(cpus), "-m", str(memory), "-nodefaults",
            "-no-user-config", "-display", "none", "-no-reboot",
            "-kernel", f"{kernel_folder}/kernel", "-initrd", initramfs,
            "-serial", f"file:{self.log}", "-device", "virtio-rng-pci",
            "-netdev", "tap,id=net,ifname=tap0,script=no,downscript=no",
            "-device", "virtio-net-pci,netdev=net,host_mtu=9000,romfile=,"
            "mac=52:54:00:77:00:02",
            "-device", "virtio-serial-pci"]
        for i, s in enumerate(theirs):
            argv += ["-chardev", f"socket,id=shell{i},fd={s.fileno()}",
                     "-device", f"virtserialport,chardev=shell{i},"
                     f"name=peer.{i}"]
        if share:
            append.append("peer.share=share")
            argv += ["-fsdev", f"local,id=share,path={share},"
                     "security_model=none", "-device",
                     "virtio-9p-pci,fsdev=share,mount_tag=share"]
        argv += ["-append", " ".join(append)]
        self.qemu = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
            pass_fds=[s.fileno() for s in theirs])
        for s in theirs:
            s.close()
        try:
            self.release = self._await_ready()
        except BaseException:
            self.close()
            raise
        for i in range(SHELLS):
            self.idle.put(i)

    def _await_ready(self):
        s = self.sockets[0]
        s.settimeout(BOOT_LIMIT)
        said = b""
        try:
            while not said.endswith(b"\x010\n"):
                data = s.recv(4096)
                if not data:
                    self.qemu.wait(30)
                    raise GuestGone("the guest ended while it booted:\n" +
                                    self.qemu.stdout.read() +
                                    self.console_end())
                said += data
        except socket.timeout:
            raise GuestGone(f"no guest within {BOOT_LIMIT} s:\n" +
                            self.console_end()) from None
        return re.search(rb"ready (\S+)", said).group(1).decode()

    def console_end(self, lines=40):
        """The last console output: from the first sign of a crash on, if there
        is one, because the cause is there."""
        try:
            with open(self.log, errors="replace") as f:
                said = f.readlines()
        except OSError:
            return ""
        for i, line in enumerate(said):
            if CRASH.search(line):
                return "".join(said[i:i + lines])
        return "".join(said[-lines:])

    def gone(self):
        """The exception for a guest that has ended."""
        self.is_gone = True
        return GuestGone("the guest has ended:\n" + self.console_end())

    def start(self, text):
        """Starts a shell command in the guest and returns a Command."""
        if self.is_gone:
            raise self.gone()
        try:
            shell = self.idle.get(timeout=COMMAND_LIMIT)
        except queue.Empty:
            raise GuestGone("every shell of the guest is taken") from None
        return Command(self, shell, text)

    def check(self, text, limit=COMMAND_LIMIT):
        """Returns the output of a shell command that must succeed."""
        return self.start(text).finish(f"in the guest: {text}:", limit)

    def gid_index(self, address, device="rxe0"):
        """Index of the GID that `address` has in the guest."""
        packed = (b"\0" * 10 + b"\xff\xff" + socket.inet_aton(address)
                  if "." in address
                  else socket.inet_pton(socket.AF_INET6, address))
        want = ":".join(packed[i:i + 2].hex() for i in range(0, 16, 2))
        found = self.check(
            f"cd /sys/class/infiniband/{device}/ports/1/gids; "
            f"grep -l {want} * 2>/dev/null | head -n 1").strip()
        if not found:
            raise Failure(f"{device} in the guest has no GID {address}")
        return int(found)

    def close(self):
        if self.qemu.poll() is None:
            os.killpg(self.qemu.pid, signal.SIGKILL)
        self.qemu.stdout.close()
        self.qemu.wait()
        for s in self.sockets:
            s.close()


def why_not():
    """The reason why no guest can run here, in one line, or None."""
    if os.geteuid() != 0:
        return "needs root, for a network namespace and a tap interface"
    if not os.path.exists("/dev/net/tun"):
        return "needs /dev/net/tun"
    for program, package in (("ip", "iproute2"), ("setpriv", "util-linux"),
                             ("qemu-system-x86_64", "qemu-system-x86")):
        if not shutil.which(program):
            return f"needs {program} (Debian package {package})"
    try:
        network = Network("probe")
    except Failure as e:
        return f"cannot make a namespace with a tap interface ({e})"
    network.close()
    return None


def make_image(version, cache, work, programs, prefix=None):
    """Makes the kernel folder and the initial file system for Debian's kernel
    `version`, with our device as installed in `prefix`, if given. Raises
    image.Unavailable."""
    folder = image.kernel(version, cache)
    initramfs = os.path.join(work, f"initramfs-{version}")
    image.initramfs(initramfs, folder, programs, prefix)
    return folder, initramfs
