"""A bad network: the guest's kernel drops, reorders, duplicates and corrupts
RoCE packets in both directions. Programs must still succeed, only later.
"""

import json
import time

import pair
from places import Failure
from stock import Setting

# Kind of impairment -> arguments of tc-netem(8).
KINDS = {
    "loss 1 %": "loss 1%",
    "reorder 5 %": "delay 1ms reorder 5%",
    "duplicate 2 %": "duplicate 2%",
    "corrupt 0.1 %": "corrupt 0.1%",
}
# The settings without --full: each kernel and each direction twice.
SETTINGS = {
    "loss 1 %": Setting("6.1", 1500, 4, "host"),
    "reorder 5 %": Setting("6.1", 4200, 4, "guest"),
    "duplicate 2 %": Setting("6.12", 1500, 6, "guest"),
    "corrupt 0.1 %": Setting("6.12", 4200, 6, "host"),
}

# An error is reported by one NAK, and a queue pair in error is silent. If that
# NAK is lost, the requester's retries end instead.
NAKED = {"bad_key", "out_of_bounds", "wrong_rights", "not_offered",
         "misaligned_atomic", "too_long", "bad_receive", "window_type_1",
         "window_type_2", "window_unbound", "window_limits",
         "misaligned_atomic_write", "flush_not_allowed"}
# The CM sends these messages only once: the program's rejection, and the end
# of an id. A lost datagram is not repeated either.
SAID_ONCE = {"cm_rejected", "cm_active_gives_up", "cm_passive_gives_up",
             "cm_destroyed", "cm_datagram"}
# rxe as requester of READs does not survive reordered responses: its queue
# pair ends in error, sometimes after a completion without its data; two rxe
# fail the same way. 6.12 also did so with corruption, with us as responder
# (docs/interop.md).
WITH_READS = {"read", "scatter_gather", "megabyte", "fence", "mixed",
              "psn_wrap", "reset", "recreate", "eight_at_once",
              "requester_destroyed", "destroyed_in_transfer"}

PAIR = "verbs_pair"
STOCK = (("ibv_rc_pingpong", "-c -s 4097 -n 100"),
         ("ibv_srq_pingpong", "-s 4097 -n 100"),
         ("ib_send_bw", "-s 65536 -n 20 -b"),
         ("ib_write_bw", "-s 65536 -n 20 -q 8"),
         ("ib_read_bw", "-s 65536 -n 20"),
         ("ib_atomic_bw", "-n 200"))

_LEAVING = "eth0"
_ARRIVING = "ifb0"  # receives arriving packets
DEVICES = (_LEAVING, _ARRIVING)


def rxe_reads_badly(setting, kind):
    """Whether READs by the guest's rxe must be excluded."""
    return setting.server == "host" and (setting.kernel == "6.12" or
                                         "reorder" in kind)


def scenarios(setting, kind):
    """The scenarios of verbs_pair that must succeed."""
    out = [name for name in pair.scenarios(setting)
           if name not in NAKED | SAID_ONCE]
    # rxe that has missed a packet of a UC WRITE accepts no further message,
    # and after one of a SEND loses some others.
    if setting.server == "guest":
        out = [name for name in out if not name.startswith("uc_")]
    # 6.12 does not survive a repeated READ near a zero-length one: it refuses
    # it (rxe_mr_copy warns of an invalid memory region) or is silent.
    if (setting.kernel == "6.12" and setting.server == "guest" and
            "duplicate" not in kind):
        out.remove("read")
    # 6.12 retransmits an ATOMIC WRITE with address 0, which is refused if the
    # first one was lost.
    if (setting.kernel == "6.12" and setting.server == "host" and
            "loss" in kind):
        out.remove("atomic_write")
    if rxe_reads_badly(setting, kind):
        return [name for name in out if name not in WITH_READS]
    # In "mixed" both ends send READs.
    return [name for name in out if name != "mixed"] if (
        setting.kernel == "6.12" or "reorder" in kind) else out


def lines(setting, kind):
    """The report's lines of one run."""
    programs = [f"{program} {options}" for program, options in STOCK]
    if rxe_reads_badly(setting, kind):
        programs = [p for p in programs if "read" not in p]
    # The pingpongs end without a handshake: an end that must retransmit has no
    # peer any more, and rxe then retries for ever.
    if "duplicate" not in kind:
        programs = [p for p in programs if "pingpong" not in p]
    return [PAIR] + programs


def impair(guest, netem):
    """Sends RoCE packets of both directions through netem. Other packets, with
    which the programs coordinate, are not affected."""
    commands = ["ip link set ifb0 mtu 9000 up",
                "tc qdisc add dev eth0 handle ffff: ingress",
                "tc filter add dev eth0 parent ffff: matchall "
                "action mirred egress redirect dev ifb0"]
    for device in DEVICES:
        commands += [f"tc qdisc add dev {device} root handle 1: prio bands 4 "
                     "priomap" + " 0" * 16,
                     f"tc qdisc add dev {device} parent 1:4 handle 40: netem "
                     f"limit 20000 {netem}"]
        for priority, protocol in ((1, "ip"), (2, "ipv6")):
            commands.append(
                f"tc filter add dev {device} parent 1: protocol {protocol} "
                f"prio {priority} flower ip_proto udp dst_port 4791 "
                "classid 1:4")
    guest.check("set -e; " + "; ".join(commands))


def repair(guest):
    guest.check("tc qdisc del dev eth0 root; tc qdisc del dev eth0 ingress; "
                "tc qdisc del dev ifb0 root; ip link set ifb0 down")


def through_netem(guest, device):
    """Packets that went through netem, and packets that it dropped."""
    for qdisc in json.loads(guest.check(f"tc -s -j qdisc show dev {device}")):
        if qdisc["kind"] == "netem":
            return qdisc["packets"], qdisc["drops"]
    raise Failure(f"no netem on {device}")


def run(ends, setting, kind):
    """Yields (line, verdict, why, seconds) of `lines`."""
    guest = ends.guest
    impair(guest, KINDS[kind])
    try:
        start = time.monotonic()
        bad = [f"{name}: {why}" for name, verdict, why, _ in
               pair.run(ends, setting, scenarios(setting, kind))
               if verdict == "failed"]
        through = [through_netem(guest, device)
                   for device in DEVICES]
        packets = [n for n, _ in through]
        drops = sum(n for _, n in through)
        if min(packets) < 100:
            bad.append(f"only {packets} packets went through netem")
        if "loss" in kind and sum(packets) > 2000 and drops == 0:
            bad.append("netem has dropped nothing")
        yield (PAIR, "failed" if bad else "ok", "\n".join(bad),
               time.monotonic() - start)
        for program, options in STOCK:
            line = f"{program} {options}"
            if line not in lines(setting, kind):
                continue
            yield line, *ends.attempt_stock(
                f"{setting}: {kind}: {line}", setting, program, options)
    finally:
        repair(guest)
