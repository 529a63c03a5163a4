"""fio with ioengine=rdma: write, read and send.

fio verifies what a server receives by SEND. It does not verify data of WRITEs
and READs.
"""

import re
import time

import places
from applications import Check, expect
from places import Failure

NAME = "fio"
PROGRAMS = ("fio",)
PORT = 18600

# The server does not show that it listens: a client that is too early is
# started again.
TOO_EARLY = re.compile(r"RDMA_CM_EVENT_(REJECTED|UNREACHABLE) instead of")


def _client(runner, place, how, server, argv):
    end_time = time.monotonic() + places.LIMIT
    while True:
        client = runner.start(place.client, how, argv)
        try:
            return places.finish(client, "the client")
        except Failure as e:
            if (not TOO_EARLY.search(str(e)) or server.poll() is not None or
                    time.monotonic() > end_time):
                raise
            time.sleep(0.05)
        finally:
            places.end(client)


def _run(verb, blocks, block, depth, verify="", brief=False):
    def run(runner, place, how):
        common = ["fio", "--name=job", "--ioengine=rdma", f"--port={PORT}",
                  f"--bs={block}", f"--size={blocks * block}"]
        if verify:
            common += [f"--verify={verify}", "--verify_fatal=1"]
        # fio connects with an rnr_retry of 0: a SEND without a receive ends
        # it. All receives are posted before the first SEND.
        receives = blocks if verb == "send" else depth
        server = runner.start(place.server, how, common + [
            "--rw=read", f"--iodepth={receives}"])
        try:
            # The client writes data that the server can verify, and reads
            # nothing back.
            said = _client(runner, place, how, server, common + [
                "--rw=write", f"--verb={verb}", "--do_verify=0",
                f"--iodepth={depth}",
                f"--hostname={place.server.ipv4}"])
            expect(said, "err= 0", f"total=0,{blocks},0,0")
            # The server only sees the end of WRITEs and READs.
            heard = blocks if verb == "send" else 1
            expect(places.finish(server, "the server"), "err= 0",
                   f"total={heard},0,0,0")
        except Failure as e:
            raise Failure(f"{e}\nthe server {places.last_words(server)}") from e
        finally:
            places.end(server)

    what = f"{verb} {blocks} x {block}, depth {depth}"
    return Check(what + (f", verify {verify}" if verify else ""), run, brief)


def checks():
    out = []
    for verb in ("write", "read"):
        for blocks, block, depth in ((1000, 4096, 1), (20000, 4096, 32),
                                     (4000, 65536, 16), (500, 1 << 20, 8)):
            out.append(_run(verb, blocks, block, depth, "", block == 65536))
    for blocks, block, depth, verify in (
            (500, 4096, 1, ""), (500, 4096, 32, "crc32c"),
            (500, 65536, 16, "md5"), (64, 1 << 20, 8, "sha256")):
        out.append(_run("send", blocks, block, depth, verify, verify == "md5"))
    return out
