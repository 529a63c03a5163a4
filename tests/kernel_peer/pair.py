"""verbs_pair (//tests/kernel_peer/verbs_pair): content and errors.

One run of the two processes does all scenarios; each is a line of the report.
"""

import os
import re
import subprocess

import places
from places import Failure
from stock import PORT

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BINARY = os.path.join(ROOT, "bazel-bin/tests/kernel_peer/verbs_pair",
                      "verbs_pair")


def binary():
    """Path of the program; it must have been built."""
    if not os.path.exists(BINARY):
        raise SystemExit("run: no verbs_pair; run tools/dev build first")
    return BINARY


def scenarios():
    """Names of the scenarios that are run unless others are asked for."""
    done = subprocess.run([binary(), "-l"], capture_output=True, text=True)
    return done.stdout.split()


def run(ends, setting, names=(), limit=300):
    """Runs scenarios (all, if none are named): name -> (verdict, why,
    seconds). The client makes the requests."""
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
    try:
        _, said = ends.run(setting, argv(setting.server, []),
                           argv(client, ["-r", address]), PORT, limit,
                           may_fail=True)
    except Failure as e:
        said = e
    verdicts = {}
    for line in str(said).splitlines():
        m = re.match(r" *(ok|failed|skipped) (\w+) (\d+) ms(?:: (.*))?$", line)
        if m:
            verdicts[m[2]] = m[1], m[4] or "", int(m[3]) / 1000
    return verdicts, said
