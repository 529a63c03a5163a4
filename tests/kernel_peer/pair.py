"""verbs_pair (//tests/kernel_peer/verbs_pair): contents and errors.

One run of the two processes covers many scenarios; each is a line of the
report.
"""

import os
import re
import time
from contextlib import closing, nullcontext

import flush_icrc
import places
from stock import PORT

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BINARY = os.path.join(ROOT, "bazel-bin/tests/kernel_peer/verbs_pair",
                      "verbs_pair")
LIMIT = 240  # seconds for all scenarios

# 6.1 supports neither operation; the library for rxe (rdma-core 44) cannot
# post a FLUSH.
ATOMIC_WRITE = {"atomic_write", "misaligned_atomic_write"}
FLUSH = {"flush", "flush_not_allowed"}


def scenarios(setting):
    """The names of the scenarios that run by default."""
    absent = set()
    if setting.kernel == "6.1":
        absent |= ATOMIC_WRITE
    if setting.kernel == "6.1" or setting.server == "host":
        absent |= FLUSH
    return [name for name in _all() if name not in absent]


def _all():
    if not os.path.exists(BINARY):
        raise SystemExit("run: no verbs_pair; run bazel build "
                         "//tests/kernel_peer/... first")
    return places.sh(BINARY, "-l").split()


def run(ends, setting, names):
    """Runs scenarios and yields (name, verdict, reason, seconds) of each. The
    client is the requester."""
    def argv(end, more):
        device, gid = ends.device_and_gid(end, setting.family)
        out = [BINARY if end == "host" else "verbs_pair", "-d", device, "-g",
               str(gid), "-p", str(PORT), "-k" if end == "guest" else "-K"]
        for name in names:
            out += ["-o", name]
        return out + more

    client = "guest" if setting.server == "host" else "host"
    address = (ends.network.host if setting.server == "host"
               else ends.network.guest).ipv4
    start = time.monotonic()
    with (closing(flush_icrc.Copies(ends.network)) if FLUSH & set(names)
          else nullcontext()):
        server_said, client_said = ends.run(
            setting, argv(setting.server, []), argv(client, ["-r", address]),
            limit=LIMIT, may_fail=True)
    said = dict.fromkeys(names)
    for line in client_said.splitlines():
        m = re.match(r"(ok|failed|skipped) (\w+) (\d+) ms(?:: (.*))?$", line)
        if m:
            said[m[2]] = m[1], m[4] or "", int(m[3]) / 1000
    missing = [name for name in names if not said[name]]
    for name in names:
        verdict, why, seconds = said[name] or (
            "failed", f"not reached after {time.monotonic() - start:.0f} s",
            0.0)
        if name in missing[:1]:
            why += f"\nthe client {client_said}\nthe server {server_said}"
        yield name, verdict, why, seconds
