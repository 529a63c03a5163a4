"""The measurements and their targets: one Row for each line of the table.

"Raw" is the UDP path with a copy and the CRC on both sides and 15 equal
packets in a send. "Faithful" has the packet sizes of the message: the first
packet of a WRITE is 16 bytes longer (RETH), the first and last of a READ
response are 4 bytes longer (AETH), and unequal sizes cost system calls.
"""

from dataclasses import dataclass, field
from typing import Callable

import connections
import figures
from figures import (bandwidth, dc_in_turn, idle, latency,
                     memory_per_queue_pair, ordinary_user, raw_bandwidth,
                     raw_latency, ring_bandwidth, signed, tcp_bandwidth,
                     threads, verbs)
from ucx_mpi import mpi_ping_pong, tag_bandwidth, tag_latency

KB, MB = 1 << 10, 1 << 20
SMALL = ["--mtu", "64", "--segments", "64"]  # of raw_udp


@dataclass
class Reference:
    """What our figure is divided by."""

    name: str
    measure: Callable
    target: float = None  # of the ratio; None: not a target


@dataclass
class Row:
    name: str
    unit: str
    ours: Callable
    references: list = field(default_factory=list)
    less: bool = False  # whether less is better
    limit: float = None  # of our own figure
    runs: int = None  # overrides the requested number


def _faithful(program, size, mtu, place):
    extra = {"ib_write_bw": ["--first-extra", "16"],
             "ib_read_bw": ["--first-extra", "4", "--last-extra", "4"],
             "ib_send_bw": []}[program]
    return raw_bandwidth(["--work", "--mtu", str(mtu), "--message",
                          str(size)] + extra, size, place)


def _large(place, mtu, target):
    """64 KB messages by the three operations."""
    out = []
    for program in ("ib_write_bw", "ib_send_bw", "ib_read_bw"):
        references = [Reference("faithful raw UDP", _faithful(
            program, 64 * KB, mtu, place), target)]
        if program == "ib_write_bw":
            references.append(Reference("TCP, 64 KB writes",
                                        tcp_bandwidth(64 * KB, place)))
        where = "loopback" if place == "loopback" else \
            f"{place} (RoCE {mtu})"
        out.append(Row(f"{program} 64 KB, {where}", "Gbit/s",
                       bandwidth([program, "-s", str(64 * KB)], place),
                       references))
    return out


def _one_pair(seconds=1):
    return bandwidth(["ib_write_bw", "-s", str(64 * KB)], seconds=seconds)


def _unacknowledged(service):
    """UC and UD: messages are counted when sent, because lost ones are not
    repeated."""
    return [
        Row(f"ib_send_bw -c {service} 64 B", "M messages/s",
            bandwidth(["ib_send_bw", "-c", service, "-s", "64"],
                      messages_per_s=True),
            [Reference("raw 64-byte segmented sends, without copy and CRC",
                       raw_bandwidth(SMALL, 64, messages_per_s=True), 0.1)]),
        Row(f"ib_send_lat -c {service} 64 B, both ends poll", "us",
            latency(["ib_send_lat", "-c", service, "-s", "64"]),
            [Reference("ib_send_lat 64 B, both ends poll",
                       latency(["ib_send_lat", "-s", "64"]), 1.0)],
            less=True),
    ]


def _beside_rc(service):
    """Services whose ends are halves of RC, compared with RC."""
    out = []
    for program in ("ib_write_bw", "ib_send_bw"):
        argv = [program, "-s", str(64 * KB)]
        out.append(Row(f"{program} -c {service} 64 KB", "Gbit/s",
                       bandwidth(argv + ["-c", service]),
                       [Reference(f"{program} 64 KB", bandwidth(argv), 0.95)]))
    for program in ("ib_write_lat", "ib_send_lat"):
        argv = [program, "-s", "64"]
        out.append(Row(f"{program} -c {service} 64 B", "us",
                       latency(argv + ["-c", service]),
                       [Reference(f"{program} 64 B", latency(argv), 1.1)],
                       less=True))
    return out


# References of several rows.
PASSIVE_RESPONDER = raw_latency(["--wait", "spin", "--peer-wait", "block",
                                 "--size", "84"], round_trips=1)
STREAM_BY_TCP = connections.rstream_bandwidth(64 * KB, "-T s")

# An application over our device: name, unit, and the target beside UCX's tcp
# and shared memory when our packets go through shared memory.
APPLICATIONS = [
    ("UCP tag bandwidth 8 B", "M messages/s", 1.0, None, tag_bandwidth,
     (8, 200_000), {"messages_per_s": True}),
    ("UCP tag bandwidth 64 KB", "Gbit/s", 1.5, 0.6, tag_bandwidth,
     (64 * KB, 10_000), {}),
    ("UCP tag bandwidth 1 MB", "Gbit/s", 1.5, 0.6, tag_bandwidth,
     (MB, 1_000), {}),
    ("UCP tag latency 8 B", "us", 0.35, None, tag_latency, (8, 20_000), {}),
    ("Open MPI ping-pong 8 B", "us", 0.35, None, mpi_ping_pong, (8, 20_000),
     {}),
    ("Open MPI ping-pong 1 MB", "Gbit/s", 1.5, 0.6, mpi_ping_pong, (MB, 500),
     {"gbit_per_s": True}),
]


def _applications(memory):
    out = []
    for name, unit, tcp, sm, measure, args, options in APPLICATIONS:
        out.append(Row(
            name + (", shared memory" if memory else ""), unit,
            measure("ours, shared memory" if memory else "ours", *args,
                    **options),
            [Reference("UCX's tcp", measure("tcp", *args, **options),
                       tcp if memory else 1.0),
             Reference("UCX's shared memory",
                       measure("shared memory", *args, **options),
                       sm if memory else None)],
            less=unit == "us"))
    return out


def _same_host():
    """RXE_USER_SAME_HOST=memory, compared with UDP and others."""
    out = []
    for program in ("ib_send_lat", "ib_write_lat"):
        argv = [program, "-s", "64"]
        out.append(Row(f"{program} 64 B, shared memory", "us",
                       latency(argv, memory=True),
                       [Reference("by UDP", latency(argv), 0.3)], less=True))
    out.append(Row("ib_read_lat 64 B, passive responder, shared memory", "us",
                   latency(["ib_read_lat", "-s", "64"], memory=True),
                   [Reference("raw UDP, a spinner and a blocked end",
                              PASSIVE_RESPONDER, 1.0)], less=True))
    argv = ["ib_send_bw", "-s", "64"]
    out.append(Row("ib_send_bw 64 B, shared memory", "M messages/s",
                   bandwidth(argv, messages_per_s=True, memory=True),
                   [Reference("by UDP", bandwidth(argv, messages_per_s=True),
                              2.0)]))
    for size, text in ((64 * KB, "64 KB"), (MB, "1 MB")):
        for program in ("ib_write_bw", "ib_send_bw", "ib_read_bw"):
            argv = [program, "-s", str(size)]
            out.append(Row(f"{program} {text}, shared memory", "Gbit/s",
                           bandwidth(argv, memory=True),
                           [Reference("by UDP", bandwidth(argv), 1.6),
                            Reference("two copies through a ring",
                                      ring_bandwidth(size), 0.8)]))
    out.append(Row("rstream 64 KB, both ways by turns, shared memory", "Gbit/s",
                   connections.rstream_bandwidth(64 * KB, memory=True),
                   [Reference("rstream -T s: TCP", STREAM_BY_TCP, 1.2)]))
    return out + _applications(memory=True)


def all_rows():
    work = raw_bandwidth(["--work"], MB)
    spinning = raw_latency(["--wait", "spin", "--size", "80"])
    rows = [
        Row("ib_write_bw 1 MB, loopback", "Gbit/s",
            bandwidth(["ib_write_bw", "-s", str(MB)]),
            [Reference("raw UDP", work, 0.85),
             Reference("TCP, 1 MB writes", tcp_bandwidth(MB), 1.0),
             Reference("UDP_SEGMENT with UDP_GRO, without copy and CRC",
                       raw_bandwidth([], MB), 1 / 3)]),
        *_large("loopback", 4096, 0.90),
        *_large("veth 1500", 1024, 0.85),
        *_large("veth 9000", 4096, 0.85),
        Row("ib_write_bw 4 KB, default depth", "Gbit/s",
            bandwidth(["ib_write_bw", "-s", str(4 * KB)]),
            [Reference("raw UDP", raw_bandwidth(["--work"], 4 * KB), 0.6)]),
        Row("ib_send_bw 64 B, default post list", "M messages/s",
            bandwidth(["ib_send_bw", "-s", "64"], messages_per_s=True),
            [Reference("raw 64-byte segmented sends, without copy and CRC",
                       raw_bandwidth(SMALL, 64, messages_per_s=True), 0.1),
             Reference("raw 64-byte segmented sends",
                       raw_bandwidth(SMALL + ["--work"], 64,
                                     messages_per_s=True))]),
        *_unacknowledged("UD"),
        *_unacknowledged("UC"),
        Row("ib_write_bw -c UC 64 KB", "Gbit/s",
            bandwidth(["ib_write_bw", "-c", "UC", "-s", str(64 * KB)]),
            [Reference("ib_write_bw 64 KB", _one_pair(), 1.0)]),
        *_beside_rc("DC"),
        *_beside_rc("XRC"),
        Row("DC WRITE 8 B, two targets in turn, within a process", "us",
            dc_in_turn(2),
            [Reference("RC", dc_in_turn(0), 2.5),
             Reference("one target", dc_in_turn(1))], less=True),
        *[Row(f"WRITE 64 KB out of a memory key with {name}, within a process",
              "MB/s", signed(signature),
              [Reference("without signatures", signed("none"), 0.7)])
          for name, signature in (("CRC-32C", "crc32c"),
                                  ("T10-DIF", "t10dif"))],
        # 64 bytes and BTH, ICRC; RETH; AETH.
        Row("ib_send_lat 64 B, both ends poll", "us",
            latency(["ib_send_lat", "-s", "64"]),
            [Reference("raw UDP, both ends spin", spinning, 1.35),
             Reference("raw UDP, both ends spin (first bar)", spinning, 3),
             Reference("raw UDP, an acknowledgement beside each message",
                       raw_latency(["--wait", "spin", "--size", "80",
                                    "--ack", "20"]))],
            less=True),
        Row("ib_write_lat 64 B, both ends spin on memory", "us",
            latency(["ib_write_lat", "-s", "64"]),
            [Reference("raw UDP, blocked beside both spinners",
                       raw_latency(["--wait", "helper", "--size", "96"]),
                       1.3)], less=True),
        Row("ib_read_lat 64 B, passive responder, round trip", "us",
            latency(["ib_read_lat", "-s", "64"]),
            [Reference("raw UDP, a spinner and a blocked end",
                       PASSIVE_RESPONDER, 1.3)], less=True),
        Row("ib_read_lat 64 B, RXE_USER_SPIN_US=100", "us",
            latency(["ib_read_lat", "-s", "64"], spin_us=100),
            [Reference("raw UDP, both ends spin, round trip",
                       raw_latency(["--wait", "spin", "--size", "84"],
                                   round_trips=1))], less=True),
        Row("ib_send_lat 64 B, events (-e)", "us",
            latency(["ib_send_lat", "-s", "64", "-e"]),
            [Reference("raw UDP, both ends block",
                       raw_latency(["--wait", "block", "--size", "80"]),
                       1.3)], less=True),
    ]
    rows += _same_host()
    for count, depth in ((8, 128), (1024, 16)):
        rows.append(
            Row(f"ib_write_bw 64 KB, {count:,} QPs share the load", "Gbit/s",
                bandwidth(["ib_write_bw", "-s", str(64 * KB), "-q",
                           str(count), "-t", str(depth)]),
                [Reference("one QP", _one_pair(), 0.8)]))
    # Each queue pair has its own buffer: together they exceed the caches,
    # while one queue pair's 64 KB stay in them.
    rows[-1].references.append(
        Reference("one QP from as much memory (64 MB messages)",
                  bandwidth(["ib_write_bw", "-s", str(64 * MB), "-t", "4"],
                            seconds=2)))
    for size, name, unit, field in (
            (64, "64 B", "M messages/s", "m_messages_per_s"),
            (64 * KB, "64 KB", "Gbit/s", "gbit_per_s")):
        rows.append(
            Row(f"WRITEs of {name} by 2 threads, RXE_USER_LANES=2", unit,
                threads(size, 2, field),
                [Reference("one lane", threads(size, 1, field), 1.0)]))
    rows += [
        Row("ib_write_bw 64 KB, 8 processes to 8, total", "Gbit/s",
            bandwidth(["ib_write_bw", "-s", str(64 * KB)], pairs=8,
                      seconds=5),
            [Reference("one pair", _one_pair(), 0.8)]),
        Row("ib_write_bw 64 KB, ordinary user's receive buffers", "Gbit/s",
            ordinary_user(["ib_write_bw", "-s", str(64 * KB)]),
            [Reference("large receive buffers", _one_pair(), 0.7)]),
        Row("idle, connected: CPU", "ms a second", idle("cpu"), less=True,
            limit=0.1),
        Row("idle, connected: wake-ups", "a second", idle("wakeups"),
            less=True, limit=1),
        Row("memory of an idle connected QP beside its queues", "bytes",
            memory_per_queue_pair(2000), less=True, limit=2048),
        Row("QPs in one process, each with a WRITE", "QPs",
            verbs(["--mode", "many", "--qps", "16384"], "qps"), limit=16384,
            runs=1),
        Row("create, connect and destroy 1,000 QPs", "s of CPU",
            verbs(["--mode", "setup", "--qps", "1000"], "cpu_s"), less=True,
            limit=0.1),
        Row("RDMA CM: connections, 1,000 at once (cmtime)", "a second",
            connections.connections_per_s(1000)),
        Row("RDMA CM: REQ to established, one alone (cmtime)", "us",
            connections.time_to_connect(), less=True),
        Row("rstream 64 KB, both ways by turns", "Gbit/s",
            connections.rstream_bandwidth(64 * KB),
            [Reference("rstream -T s: TCP", STREAM_BY_TCP)]),
        *_applications(memory=False),
    ]
    return rows


# --- Plots.

CURVE_SIZES = [64, 256, KB, 4 * KB, 16 * KB, 64 * KB, 256 * KB, MB]


def bandwidth_curves():
    """(name, function of size): the curves over message size."""
    def raw(size):
        if size <= 4096:  # messages sent together are equal packets
            argv = ["--work", "--mtu", str(size), "--segments", "64"]
            return raw_bandwidth(argv, size)
        return _faithful("ib_write_bw", size, 4096, "loopback")

    return [("rxe_user, ib_write_bw",
             lambda size: bandwidth(["ib_write_bw", "-s", str(size)])),
            ("raw UDP, faithful", raw),
            ("TCP", tcp_bandwidth)]


def latency_curves():
    """(name, measure): the curves of percentiles."""
    return [
        ("rxe_user, ib_send_lat",
         latency(["ib_send_lat", "-s", "64"], histogram=True)),
        ("raw UDP, spinning", raw_latency(["--wait", "spin", "--size", "80"])),
        ("TCP, spinning", figures.tcp_latency(64)),
        ("rxe_user, ib_send_lat -e",
         latency(["ib_send_lat", "-s", "64", "-e"], histogram=True)),
        ("raw UDP, blocking",
         raw_latency(["--wait", "block", "--size", "80"])),
    ]
