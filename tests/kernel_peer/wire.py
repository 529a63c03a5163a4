"""Checks the packets of our device in a capture.

The peer's kernel has accepted them. Here two decoders read them: our own
`rxe-user decode`, which checks every ICRC, and tshark, which is independent.
"""

import json
import os
import signal
import subprocess
import time
from collections import defaultdict

import pair
import places
from places import Failure

# verbs_pair marks the packets of these by the hop limit.
ADDRESS_VECTOR, FLOW_LABEL, EIGHT_AT_ONCE = 17, 18, 19
SCENARIOS = ["send", "send_immediate", "send_invalidate", "write",
             "write_immediate", "read", "atomics", "bad_key", "too_long",
             "rnr_recovers", "address_vector", "flow_label", "eight_at_once"]

# The opcodes that verbs_pair makes a requester and a responder send.
_PARTS = ("FIRST", "MIDDLE", "LAST", "ONLY")
REQUESTS = ({f"RC_{op}_{part}" for op in ("SEND", "RDMA_WRITE")
             for part in _PARTS + ("LAST_WITH_IMMEDIATE",
                                   "ONLY_WITH_IMMEDIATE")} |
            {"RC_SEND_LAST_WITH_INVALIDATE", "RC_SEND_ONLY_WITH_INVALIDATE",
             "RC_RDMA_READ_REQUEST", "RC_COMPARE_SWAP", "RC_FETCH_ADD"})
RESPONSES = ({f"RC_RDMA_READ_RESPONSE_{part}" for part in _PARTS} |
             {"RC_ACKNOWLEDGE", "RC_ATOMIC_ACKNOWLEDGE"})

# tshark guesses protocols inside InfiniBand payloads, and mistakes patterns
# for them.
HEURISTICS = ("rpcrdma_infiniband", "smb_direct_infiniband", "iser_infiniband",
              "sdp_infiniband", "smcr_infiniband", "lnet_ib", "eth_over_ib",
              "fc_infiniband")


class Capture:
    """tcpdump on the host's end, from when it captures until `close`."""

    def __init__(self, network, path):
        self.path = path
        self.process = subprocess.Popen(
            network.host.prefix() + [
                "tcpdump", "-i", "tap0", "-w", path, "-U", "-B", "262144",
                "--immediate-mode", "-Z", "root", "udp port 4791"],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            start_new_session=True)
        line = self.process.stderr.readline()
        if "listening on" not in line:
            self.process.wait()
            raise Failure(f"tcpdump: {line}{self.process.stderr.read()}")

    def close(self):
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=places.LIMIT)
        if "\n0 packets dropped by kernel" not in said:
            raise Failure(f"tcpdump: {said}")


def packets_of(runner, path):
    """Our decoder's packets of a capture, and its summary."""
    done = subprocess.run([runner.rxe_user, "decode", "--json", path],
                          capture_output=True, text=True)
    if done.returncode:
        raise Failure(f"rxe-user decode: {done.stderr.strip()}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [l for l in lines if l["type"] == "packet"], lines[-1]


def require(holds, text):
    if not holds:
        raise Failure(text)


def check_icrcs(packets, summary, ours):
    """Every packet of both ends decodes, with a good ICRC."""
    require(summary["packets"] > 100, f"only {summary['packets']} packets")
    for key in ("icrc_bad", "icrc_unknown", "malformed", "cut_off_frames",
                "ip_fragments", "other_frames"):
        require(summary[key] == 0, f"{key}: {summary[key]}")


def check_opcodes(packets, summary, ours):
    """Each opcode of a reliable connection that we support was sent."""
    wanted = REQUESTS | RESPONSES
    seen = {p["opcode"] for p in packets if p["src"] == ours}
    require(wanted <= seen, f"not sent: {', '.join(sorted(wanted - seen))}")


def check_address_vector(packets, summary, ours):
    """Traffic class and hop limit, of requests and responses."""
    marked = [p for p in packets
              if p["src"] == ours and p["ttl"] == ADDRESS_VECTOR]
    require({"RC_SEND_FIRST", "RC_ACKNOWLEDGE"} <= {p["opcode"] for p in marked},
            "no packets have the hop limit that was asked for")
    for p in marked:
        # The two lowest bits are the ECN field.
        require(p["tos"] & ~3 == 0x68, f"frame {p['frame']} has traffic class "
                f"{p['tos']:#x}, not 0x68")
    for p in packets:
        if p["src"] == ours and p["ttl"] != ADDRESS_VECTOR:
            require(p["tos"] & ~3 == 0, f"frame {p['frame']} has traffic "
                    f"class {p['tos']:#x} unasked")


def ports_by_flow(packets, ours, ttl):
    """The source ports of our packets with this hop limit, by the peer's queue
    pair, for each of our two processes."""
    processes = defaultdict(lambda: defaultdict(set))
    for p in packets:
        if p["src"] == ours and p["ttl"] == ttl:
            require(0xC000 <= p["src_port"], f"source port {p['src_port']}")
            processes[p["capture"]][p["qp"]].add(p["src_port"])
    for ports in processes.values():
        for qp, used in ports.items():
            require(len(used) == 1, f"the flow to QP {qp} uses source ports "
                    f"{sorted(used)}")
    require(len(processes) == 2, f"{len(processes)} processes, not 2")
    return [{qp: min(used) for qp, used in ports.items()}
            for ports in processes.values()]


def check_flow_label(packets, summary, ours):
    """Two queue pairs with one flow label have one source port."""
    for ports in ports_by_flow(packets, ours, FLOW_LABEL):
        require(len(ports) == 2, f"{len(ports)} flows, not 2")
        require(len(set(ports.values())) == 1, f"source ports {ports}")


def check_spread(packets, summary, ours):
    """Without a label, flows spread over source ports."""
    for ports in ports_by_flow(packets, ours, EIGHT_AT_ONCE):
        require(len(ports) == 8, f"{len(ports)} flows, not 8")
        used = sorted(set(ports.values()))
        # A process has only a few ports: eight flows may share some, but not
        # all.
        require(len(used) >= 2, f"eight flows share source ports {used}")


def check_tshark(path, ours):
    """tshark finds nothing malformed or wrong, and knows every opcode."""
    field = "ipv6.src" if ":" in ours else "ip.src"
    argv = ["tshark", "-n", "-r", path]
    for name in HEURISTICS:
        argv += ["--disable-heuristic", name]
    done = subprocess.run(
        argv + ["-Y", f"{field} == {ours}", "-T", "fields", "-e",
                "frame.number", "-e", "infiniband.bth.opcode", "-e",
                "_ws.malformed", "-e", "_ws.expert.message", "-e",
                "_ws.col.Info"],
        capture_output=True, text=True)
    require(done.returncode == 0, f"tshark: {done.stderr.strip()}")
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    require(len(rows) > 100, f"tshark sees only {len(rows)} packets of ours")
    for number, opcode, malformed, expert, info in rows:
        require(opcode and not malformed and not expert and
                "Unknown" not in info,
                f"frame {number} (opcode {opcode}): {info} {malformed} "
                f"{expert}")


CHECKS = {
    "wire: ICRCs, rxe-user decode": check_icrcs,
    "wire: every opcode": check_opcodes,
    "wire: traffic class, hop limit": check_address_vector,
    "wire: flow label gives the source port": check_flow_label,
    "wire: flows spread over source ports": check_spread,
}
TSHARK = "wire: tshark finds nothing malformed"
LINES = list(CHECKS) + [TSHARK]


def run(ends, setting, work):
    """Runs verbs_pair under a capture, with our device as requester and then
    as responder. Yields (line, verdict, reason, seconds) of LINES."""
    start = time.monotonic()
    paths = []
    for server in ("guest", "host"):
        path = os.path.join(work, f"{server}.pcap")
        capture = Capture(ends.network, path)
        try:
            way = setting.__class__(setting.kernel, setting.mtu,
                                    setting.family, server)
            for name, verdict, why, _ in pair.run(ends, way, SCENARIOS):
                if verdict == "failed":
                    raise Failure(f"{name}: {why}")
        finally:
            capture.close()
        paths.append(path)

    host = ends.network.host
    ours = host.ipv4 if setting.family == 4 else host.ipv6
    packets, summary = [], defaultdict(int)
    for path in paths:
        more, counts = packets_of(ends.runner, path)
        packets += [dict(p, capture=path) for p in more]
        for key, value in counts.items():
            if key != "type":
                summary[key] += value

    def tshark(packets, summary, ours):
        for path in paths:
            check_tshark(path, ours)

    for line, check in {**CHECKS, TSHARK: tshark}.items():
        try:
            check(packets, summary, ours)
            yield line, "ok", "", time.monotonic() - start
        except Failure as e:
            yield line, "failed", str(e), time.monotonic() - start
        start = time.monotonic()
