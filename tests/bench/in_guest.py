"""Stock perftest inside a guest under QEMU: our device beside the guest's own
rdma_rxe, on the same virtual processors and kernel.

rxe runs through the guest's own libibverbs, at the address of its eth0. Our
device is in a network namespace of the guest, because rxe holds UDP port 4791
of the first one. Both ends are processes of the guest at one address. rxe
passes such packets to itself; ours go through the kernel's IP and UDP.

A guest is emulated: its figures are only comparable with each other.
"""

import json
import os
import sys
import tempfile

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "kernel_peer"))
import figures
import guest as guests
import image
import places
import stock
from figures import Failure, Skip
from rows import KB, MB, Reference, Row

CACHE = os.path.join(figures.ROOT, "out", "kernel_peer")
LINK_MTU, ROCE_MTU = 4200, 4096
PROCESSORS = 2
NAMESPACE, NETDEV, ADDRESS = "ours", "own0", "10.77.1.1"
LIMIT = 100  # seconds until a program that has not ended has failed

# Bytes -> messages in a run: a second and more, emulated.
MESSAGES = {64: 50000, 4 * KB: 25000, 64 * KB: 2000, MB: 150}
ROUND_TRIPS = 10000


class GuestBench(figures.Turns):
    """A guest of kernel `version` with both devices."""

    def __init__(self, version):
        super().__init__()
        why = guests.why_not()
        if why:
            raise Skip(f"--kernel-peer {why}")
        self.work = tempfile.TemporaryDirectory(prefix="rxe_user-bench-")
        self.network = self.guest = None
        try:
            kernel, initramfs = guests.make_image(
                version, os.path.abspath(CACHE), self.work.name,
                ["ip", "rdma", "ib_send_bw", "ib_write_bw", "ib_read_bw",
                 "ib_send_lat"], prefix=os.path.join(figures.ROOT, "out"))
            self.network = guests.Network("bench")
            self.guest = guests.Guest(self.network, kernel, initramfs,
                                      self.work.name, mtu=LINK_MTU,
                                      cpus=PROCESSORS)
            self._prepare()
        except image.Unavailable as e:
            self.close()
            raise Skip(f"--kernel-peer: {e}") from e
        except BaseException:
            self.close()
            raise

    def _prepare(self):
        # The veth peer only provides a carrier: traffic to its own address
        # stays inside.
        self.guest.check(
            f"ip netns add {NAMESPACE} && ip -n {NAMESPACE} link set lo up && "
            f"ip -n {NAMESPACE} link add {NETDEV} type veth peer name own1 && "
            f"ip -n {NAMESPACE} link set own1 mtu {LINK_MTU} up && "
            f"ip -n {NAMESPACE} link set {NETDEV} mtu {LINK_MTU} up && "
            f"ip -n {NAMESPACE} addr add {ADDRESS}/24 dev {NETDEV}")
        within = f"ip netns exec {NAMESPACE}"
        program = f"/{image.OURS}/bin/rxe-user"
        found = json.loads(self.guest.check(
            f"{within} {program} devices --json"))["devices"]
        # Device -> how a command line begins; device, GID, address.
        self.ends = {
            "ours": (f"{within} {program} run --",
                     *places.find_gid(found, NETDEV, ADDRESS), ADDRESS),
            "rxe": ("", "rxe0", self.guest.gid_index(self.network.guest.ipv4),
                    self.network.guest.ipv4)}

    def about(self):
        return (f"in a guest under QEMU, emulated, {PROCESSORS} processors: "
                f"Linux {self.guest.release}, RoCE MTU {ROCE_MTU}")

    def close(self):
        if self.guest:
            self.guest.close()
        if self.network:
            self.network.close()
        self.work.cleanup()

    def perftest(self, who, argv):
        """The output of the client."""
        within, device, gid, address = self.ends[who]
        command = (f"{within} {' '.join(argv)} -d {device} -x {gid} -F "
                   f"-p {stock.PORT}")
        server = self.guest.start(command)
        client = None
        try:
            stock.await_listen_in_guest(
                self.guest, server, stock.PORT,
                within=f"ip netns exec {NAMESPACE}" if within else "")
            client = self.guest.start(f"{command} {address}")
            said = client.finish("the client", LIMIT)
            server.finish("the server", LIMIT)
            return said
        except guests.GuestGone:
            raise
        except Failure as e:
            raise Failure(f"{who}: {e}\nthe server: {server.wait(1)}") from e
        finally:
            for command in (client, server):
                if command:
                    command.end()


def bandwidth(who, program, size):
    """Messages a second of 64 bytes, Mbit/s of more."""
    def measure(bench):
        text = bench.perftest(who, [program, "-s", str(size), "-n",
                                    str(MESSAGES[size])])
        sample = figures.bandwidth_sample([text], messages_per_s=size == 64)
        sample.value *= 1e6 if size == 64 else 1e3
        return sample

    return measure


def latency(who, program, size):
    def measure(bench):
        return figures.latency_sample(bench.perftest(
            who, [program, "-s", str(size), "-n", str(ROUND_TRIPS)]))

    return measure


def all_rows():
    """Each must be faster than rxe."""
    names = {64: "64 B", 4 * KB: "4 KB", 64 * KB: "64 KB", MB: "1 MB"}
    return [
        Row(f"{program} {names[size]}",
            "messages/s" if size == 64 else "Mbit/s",
            bandwidth("ours", program, size),
            [Reference("rxe", bandwidth("rxe", program, size), 1.0)])
        for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw")
        for size in MESSAGES
    ] + [
        Row("ib_send_lat 64 B", "us",
            latency("ours", "ib_send_lat", 64),
            [Reference("rxe", latency("rxe", "ib_send_lat", 64), 1.0)],
            less=True)
    ]
