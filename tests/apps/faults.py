"""Stock programs under fault rules: exactly the packets that a rule names are
hit, the programs recover, and the recordings and explanations name the rule."""

import collections
import json
import os
import shutil
import subprocess
import tempfile

import places
from places import Failure, How

PORT = 18515
MESSAGES = 5
BYTES = 16384  # 16 packets of 1,024 bytes

# Rules of the client, which writes, and of the server, which answers. Each rule
# hits one packet, whose opcode begins as given.
WRITER_RULES = [
    ("drop tx op=data qp=@1 psn=+5 iter=1", "RC_RDMA_WRITE_MIDDLE", 5),
    ("duplicate tx op=data nth=17", "RC_RDMA_WRITE_FIRST", 16),
    ("corrupt payload tx op=data nth=3", "RC_RDMA_WRITE_MIDDLE", 2),
    ("delay 2ms tx op=data nth=7", "RC_RDMA_WRITE_MIDDLE", 6),
    ("reorder 2 tx op=data nth=7", "RC_RDMA_WRITE_MIDDLE", 6),
    ("ce tx op=data nth=4", "RC_RDMA_WRITE_MIDDLE", 3),
    ("drop rx op=ack nth=1", "RC_ACKNOWLEDGE", None),
    ("duplicate rx op=ack nth=1", "RC_ACKNOWLEDGE", None),
    ("corrupt icrc rx op=ack nth=1", "RC_ACKNOWLEDGE", None),
]
RECEIVER_RULES = [
    ("drop rx op=data qp=@1 psn=+5 iter=1", "RC_RDMA_WRITE_MIDDLE", 5),
    ("duplicate rx op=RC_RDMA_WRITE_LAST nth=2", "RC_RDMA_WRITE_LAST", 31),
    ("corrupt psn rx op=data nth=3", "RC_RDMA_WRITE_MIDDLE", None),
    ("delay 2ms rx op=data nth=7", "RC_RDMA_WRITE_MIDDLE", None),
    ("reorder 2 rx op=data nth=7", "RC_RDMA_WRITE_MIDDLE", None),
    ("ce rx op=data nth=4", "RC_RDMA_WRITE_MIDDLE", None),
    ("drop tx op=ack nth=1", "RC_ACKNOWLEDGE", None),
    ("corrupt msn tx op=ack nth=1", "RC_ACKNOWLEDGE", None),
    ("rnr 2ms rx op=data psn=+20 iter=1", "RC_RDMA_WRITE_MIDDLE", 20),
    ("nak PSN_SEQUENCE op=data psn=+20 iter=1", "RC_RDMA_WRITE_MIDDLE", 20),
    ("no-ack op=data psn=+79 iter=1", "RC_RDMA_WRITE_LAST", 79),
]

# Rules for other operations and transports: program, options, end, rule.
OTHER_RULES = [
    ("ib_read_bw", "-m 1024 -s 16384 -n 5", "client", "drop rx op=data nth=4"),
    ("ib_read_bw", "-m 1024 -s 16384 -n 5", "client",
     "corrupt payload rx op=data nth=4"),
    ("ib_read_bw", "-m 1024 -s 16384 -n 5", "server",
     "drop rx op=RC_RDMA_READ_REQUEST nth=2"),
    ("ib_send_bw", "-m 1024 -s 16384 -n 5", "server", "drop rx op=data nth=4"),
    ("ib_send_bw", "-m 1024 -s 16384 -n 5", "server",
     "duplicate rx op=data nth=4"),
    ("ib_atomic_bw", "-n 5", "client",
     "drop rx op=RC_ATOMIC_ACKNOWLEDGE nth=2"),
    ("ib_atomic_bw", "-n 5", "server", "drop rx op=RC_FETCH_ADD nth=2"),
    ("ibv_xsrq_pingpong", "-n 100", "server", "drop rx op=data nth=4"),
    ("ibv_ud_pingpong", "-n 100", "server", "duplicate rx op=data nth=4"),
    ("ibv_ud_pingpong", "-n 100", "client", "delay 2ms~1ms tx op=data nth=4"),
    ("ibv_uc_pingpong", "-n 100", "server", "ce rx op=data nth=4"),
    # No thread polls while the packet is held.
    ("ibv_rc_pingpong", "-e -n 100", "client", "delay 2ms rx op=data nth=4"),
    # Nothing is lost: held packets are executed after the stall.
    ("ibv_rc_pingpong", "-e -n 100", "server", "stall 20ms rx op=data nth=4"),
    ("ib_read_bw", "-m 1024 -s 16384 -n 5", "server",
     "rnr op=RC_RDMA_READ_REQUEST nth=2"),
    ("ib_atomic_bw", "-n 5", "server", "rnr op=RC_FETCH_ADD nth=3"),
    ("ib_atomic_bw", "-n 5", "server", "no-ack op=RC_FETCH_ADD nth=5"),
    ("ibv_xsrq_pingpong", "-n 100", "server", "rnr op=data nth=4"),
    ("ibv_rc_pingpong", "-e -n 100", "server", "no-ack op=data nth=4"),
    # A last acknowledgement that is held leaves when the device is closed.
    ("ibv_rc_pingpong", "-n 100", "client", "reorder 9 tx op=ack nth=20-"),
]


def tool(runner, side, *argv):
    done = subprocess.run(side.prefix() + [runner.rxe_user, *argv],
                          capture_output=True, text=True)
    if done.returncode:
        raise Failure(f"rxe-user {' '.join(argv)}: {done.stderr}")
    return done.stdout


def lines(runner, side, *files):
    return [json.loads(line) for line in
            tool(runner, side, "trace", "--json", *files).splitlines()]


def write_bw(runner, place, how, folder, server_rules, client_rules):
    return pair(runner, place, how, folder, "ib_write_bw",
                f"-m 1024 -s {BYTES} -n {MESSAGES}", server_rules,
                client_rules)


def pair(runner, place, how, folder, program, settings, server_rules,
         client_rules):
    """Runs a program with recordings server.pcapng and client.pcapng in
    `folder`. Both ends must succeed. Returns their output."""
    ds, gs = runner.device_and_gid(place.server, how.family)
    dc, gc = runner.device_and_gid(place.client, how.family)

    def argv(device, gid):
        common = (["-g", str(gid)] if program.startswith("ibv_") else
                  ["-x", str(gid), "-F"])
        return [program, "-d", device, *common, "-p", str(PORT),
                *settings.split()]

    def options(end, rules):
        out = ["--trace", os.path.join(folder, end + ".pcapng")]
        return out + (["--faults", rules] if rules else [])

    server = runner.start(place.server, how, argv(ds, gs),
                          options("server", server_rules))
    client = None
    try:
        places.await_listen(server, PORT)
        client = runner.start(place.client, how,
                              argv(dc, gc) + [place.server.ipv4],
                              options("client", client_rules))
        text = places.finish(client, "the client")
        return places.finish(server, "the server") + text
    finally:
        for process in (server, client):
            if process:
                places.end(process)


def in_folder(function):
    """A check with a folder for recordings."""
    def run(runner, place, how):
        folder = tempfile.mkdtemp(prefix="rxe_user_faults-")
        os.chmod(folder, 0o777)
        try:
            function(runner, place, how, folder)
        finally:
            shutil.rmtree(folder)
    return run


def expect(condition, what):
    if not condition:
        raise Failure(what)


def expected_fates(rule):
    """How many packets have which fate, if they do not just arrive."""
    action, *rest = rule.split()
    if action == "drop":
        return {"dropped" if "rx" in rest else "lost": 1}
    if action == "corrupt":
        return {"dropped": 1}
    if action == "no-ack":
        return {"lost": 1}  # the acknowledgement
    return {"duplicate": 1} if action == "duplicate" else {}


def one_packet(end, rule, opcode, psn):
    """A check: the rule at this end hits one packet, and nothing fails."""
    def check(runner, place, how, folder):
        output = write_bw(runner, place, how, folder,
                          rule if end == "server" else None,
                          rule if end == "client" else None)
        expect("never fired" not in output, output)
        other = "client" if end == "server" else "server"
        path = os.path.join(folder, end + ".pcapng")
        events = [e for e in lines(runner, place.server, path)
                  if e["type"] == "event"]
        faults = [e for e in events if e["name"] == "fault"]
        expect(len(faults) == 1, f"{len(faults)} faults: {faults}")
        fault = faults[0]
        expect(fault["rule"] == 1 and fault["text"] == rule, str(fault))
        rules = [e for e in events if e["name"] == "fault_rule"]
        expect(len(rules) == 1 and rules[0]["fired"] == 1, str(rules))
        failed = [e for e in events if e["name"] == "completed" and
                  e["status"] not in ("SUCCESS", "WR_FLUSH_ERR")]
        expect(not failed, str(failed))
        elsewhere = [e for e in lines(runner, place.server, os.path.join(
            folder, other + ".pcapng")) if e.get("name") == "fault"]
        expect(not elsewhere, str(elsewhere))
        # Nothing else was lost, duplicated or damaged.
        fates = collections.Counter(
            e["fate"] for e in lines(runner, place.server, *(
                os.path.join(folder, name + ".pcapng")
                for name in ("client", "server"))) if e["type"] == "packet")
        del fates["arrived"]
        expect(fates == expected_fates(rule), str(fates))
        text = tool(runner, place.server, "explain", path)
        expect(f"rule 1 ({rule})" in text, text)
        expect(opcode in text, text)
        expect("no completion failed" in text, text)
        if psn is None:
            return
        first = [e for e in events if e["name"] == "qp_state" and
                 e["to"] == ("RTS" if end == "client" else "RTR")]
        base = first[0]["send_psn" if end == "client" else "receive_psn"]
        expect(f"PSN {(base + psn) % (1 << 24)}," in text,
               f"not PSN {base} + {psn}:\n{text}")
    return in_folder(check)


def of_another_program(program, settings, end, rule):
    """A check: the rule hits one packet, or exactly those that it names, nothing
    else is lost, and the program succeeds."""
    def check(runner, place, how, folder):
        output = pair(runner, place, how, folder, program, settings,
                      rule if end == "server" else None,
                      rule if end == "client" else None)
        expect("never fired" not in output, output)
        both = lines(runner, place.server, *(
            os.path.join(folder, name + ".pcapng")
            for name in ("client", "server")))
        faults = [e for e in both if e.get("name") == "fault"]
        expect(len(faults) == 1 or "nth=20-" in rule, str(faults))
        # UC and UD do not wait for each other at the end: a packet that reaches
        # a queue pair after its end is not lost, whether its file has ended or
        # not.
        ends = {e["qpn"]: e["time"] for e in both
                if e.get("kind") == "destroyed"}
        fates = collections.Counter(
            e["fate"] for e in both if e["type"] == "packet" and
            not (e["fate"] == "dropped" and e["qp"] in ends and
                 e["received"] >= ends[e["qp"]]))
        del fates["arrived"]
        del fates["after-end"]
        expect(fates == expected_fates(rule), str(fates))
    return in_folder(check)


@in_folder
def named_by_both_ends(runner, place, how, folder):
    """The explanation of a lost packet names the rule, the packet, its wr_id,
    the NAK, and the number of retransmitted packets."""
    rule = WRITER_RULES[0][0]
    write_bw(runner, place, how, folder, None, rule)
    text = tool(runner, place.server, "explain",
                *(os.path.join(folder, end + ".pcapng")
                  for end in ("client", "server")))
    for part in (f"rule 1 ({rule}): RC_RDMA_WRITE_MIDDLE, PSN ", ", of wr_id ",
                 "was dropped", "sequence_nak_received", "sequence_nak_sent",
                 "request packets were sent again; no completion failed"):
        expect(part in text, f"no '{part}' in:\n{text}")


def lost_acknowledgements(runner, place, how):
    """All answers are lost: the program fails as it would with a dead peer, and
    the explanation names the rule."""
    device, gid = runner.device_and_gid(place.server, how.family)
    argv = ["ibv_rc_pingpong", "-d", device, "-g", str(gid), "-p", str(PORT)]
    rule = "drop rx op=ack nth=1-"
    server = runner.start(place.server, how, argv)
    client = None
    try:
        places.await_listen(server, PORT)
        client = runner.start(place.client, how, argv + [place.server.ipv4],
                              ["--faults", rule, "--explain"])
        text, _ = client.communicate(timeout=places.LIMIT)
        expect(client.returncode == 1, f"exit {client.returncode}:\n{text}")
        for part in ("transport retry counter exceeded", f"rule 1 ({rule})",
                     "whose side    the faults on command",
                     "It has executed what this side waits for",
                     "retransmission", "retry_cnt allows", "timeout 14 is"):
            expect(part in text, f"no '{part}' in:\n{text}")
    finally:
        for process in (server, client):
            if process:
                places.end(process)


NAKS = [("REM_INV_REQ_ERR", "remote invalid request error"),
        ("REM_ACCESS_ERR", "remote access error"),
        ("REM_OP_ERR", "remote operation error")]


def fatal_nak(code, message):
    """A check: a request is answered with this NAK. The client's completion
    fails with it, the server's queue pair fails, too, and the explanations
    name the rule."""
    def check(runner, place, how, folder):
        recordings = [os.path.join(folder, end + ".pcapng")
                      for end in ("client", "server")]
        device, gid = runner.device_and_gid(place.server, how.family)
        argv = ["ibv_rc_pingpong", "-d", device, "-g", str(gid), "-p",
                str(PORT)]
        rule = f"nak {code} rx op=data nth=4"
        server = runner.start(place.server, how, argv,
                              ["--faults", rule, "--explain", "--trace",
                               recordings[1]])
        client = None
        try:
            places.await_listen(server, PORT)
            client = runner.start(place.client, how,
                                  argv + [place.server.ipv4],
                                  ["--trace", recordings[0]])
            text, _ = client.communicate(timeout=places.LIMIT)
            expect(client.returncode == 1 and
                   f"Failed status {message}" in text,
                   f"exit {client.returncode}:\n{text}")
            text, _ = server.communicate(timeout=places.LIMIT)
            expect(server.returncode == 1, f"exit {server.returncode}:\n{text}")
            for part in ("vendor_err 72", f"rule 1 ({rule})",
                         "for faults hit 1 packet of this queue pair",
                         "whose side    the faults on command"):
                expect(part in text, f"no '{part}' in:\n{text}")
            expect("never fired" not in text, text)
        finally:
            for process in (server, client):
                if process:
                    places.end(process)
        text = tool(runner, place.server, "explain", *recordings)
        for part in (f"rule 1 ({rule}) for faults hit 1 packet of the peer",
                     "whose side    the faults on command"):
            expect(part in text, f"no '{part}' in:\n{text}")
    return in_folder(check)


def completion_that_fails(end, rule, message):
    """A check: the program sees the status, and explanation and recording name
    the rule."""
    def check(runner, place, how, folder):
        ds, gs = runner.device_and_gid(place.server, how.family)
        path = os.path.join(folder, "a.pcapng")
        argv = ["ibv_rc_pingpong", "-d", ds, "-g", str(gs), "-p", str(PORT)]
        options = ["--faults", rule, "--trace", path]
        server = runner.start(place.server, how, argv,
                              options if end == "server" else [])
        client = None
        try:
            places.await_listen(server, PORT)
            client = runner.start(place.client, how,
                                  argv + [place.server.ipv4],
                                  options if end == "client" else [])
            hit = server if end == "server" else client
            text, _ = hit.communicate(timeout=places.LIMIT)
            expect(hit.returncode == 1, f"exit {hit.returncode}:\n{text}")
            expect(f"Failed status {message}" in text and
                   "never fired" not in text, text)
        finally:
            for process in (server, client):
                if process:
                    places.end(process)
        events = lines(runner, place.server, path)
        failed = [e for e in events if e.get("name") == "completed" and
                  e["status"] not in ("SUCCESS", "WR_FLUSH_ERR")]
        expect(len(failed) == 1, str(failed))
        text = tool(runner, place.server, "explain", path)
        for part in (f"rule 1 ({rule}) for faults hit 1 completion of this "
                     "queue pair",
                     f"rule 1 ({rule}): a completion completed with an error"):
            expect(part in text, f"no '{part}' in:\n{text}")
    return in_folder(check)


@in_folder
def the_same_again(runner, place, how, folder):
    """The faults of a recording, as rules, hit the same packets."""
    def offsets(path):
        events = lines(runner, place.server, path)
        base = next(e["send_psn"] for e in events
                    if e.get("name") == "qp_state" and e["to"] == "RTS")
        packets = {e["id"]: e for e in events if e["type"] == "packet"}
        return sorted((packets[e["cause"]]["psn"] - base) % (1 << 24)
                      for e in events if e.get("name") == "fault")

    path = os.path.join(folder, "client.pcapng")
    write_bw(runner, place, how, folder, None,
             "drop tx op=data iter=1 p=10%")
    first = offsets(path)
    expect(len(first) > 1, str(first))
    rules = tool(runner, place.server, "faults", "of", path)
    expect(rules.count("drop tx op=RC_RDMA_WRITE_") == len(first), rules)
    output = write_bw(runner, place, how, folder, None, rules)
    expect("never fired" not in output, output)
    expect(offsets(path) == first, f"{offsets(path)}, not {first}:\n{rules}")


@in_folder
def late_completions(runner, place, how, folder):
    """A program that polls after it has armed sees every completion."""
    rule = "late-completion rx every=3"
    output = pair(runner, place, how, folder, "ibv_rc_pingpong", "-e -n 100",
                  rule, rule)
    expect("never fired" not in output, output)
    for end in ("client", "server"):
        faults = [e for e in lines(runner, place.server, os.path.join(
            folder, end + ".pcapng")) if e.get("name") == "fault"]
        expect(faults and all(e["action"] == "late-completion"
                              for e in faults), str(faults))


@in_folder
def a_call_that_fails(runner, place, how, folder):
    """The program fails as it does without memory. The line of --explain and the
    recording name the rule."""
    device, gid = runner.device_and_gid(place.client, how.family)
    rule = "fail ibv_reg_mr ENOMEM nth=1"
    path = os.path.join(folder, "a.pcapng")
    process = runner.start(place.client, how, [
        "ibv_rc_pingpong", "-d", device, "-g", str(gid)],
        ["--faults", rule, "--explain", "--trace", path])
    text, _ = process.communicate(timeout=places.LIMIT)
    expect(process.returncode == 1 and "Couldn't register MR" in text,
           f"exit {process.returncode}: {text}")
    expect(f"ibv_reg_mr failed with ENOMEM: fault rule 1 ({rule})" in text and
           "never fired" not in text, text)
    events = lines(runner, place.client, path)
    calls = [e for e in events if e.get("name") == "call" and e["error"]]
    expect(len(calls) == 1 and calls[0]["function"] == "ibv_reg_mr" and
           f"refused: fault rule 1 ({rule})" in calls[0]["arguments"],
           str(calls))
    rules = [e for e in events if e.get("name") == "fault_rule"]
    expect(len(rules) == 1 and rules[0]["fired"] == 1, str(rules))
    text = tool(runner, place.client, "explain", path)
    expect(f"fault rule 1 ({rule})" in text, text)


def under_a_profile(name):
    """A check: the program succeeds under a profile."""
    def check(runner, place, how, folder):
        pair(runner, place, how, folder, "ib_write_bw",
             "-m 1024 -s 16384 -n 200", name, name)
    return in_folder(check)


@in_folder
def rules_that_are_wrong(runner, place, how, folder):
    """Wrong rules: one line, and no program starts; from the variable, no
    device."""
    marker = os.path.join(folder, "ran")
    process = runner.start(place.client, how, ["touch", marker],
                           ["--faults", "drop rx op=dat"])
    text, _ = process.communicate(timeout=places.LIMIT)
    expect(process.returncode == 2, f"exit {process.returncode}: {text}")
    expect(text.startswith("rxe-user run: --faults: line 1, column 12: 'dat'")
           and text.count("\n") == 1, text)
    expect(not os.path.exists(marker), "the program ran")
    process = runner.start(place.client, how, [
        "env", "RXE_USER_FAULTS=drop rx op=dat", "ibv_devinfo"])
    text, _ = process.communicate(timeout=places.LIMIT)
    expect(process.returncode != 0 and "No IB devices found" in text, text)
    expect(text.count("RXE_USER_FAULTS: line 1, column 12: 'dat'") == 1, text)


@in_folder
def a_rule_that_never_fires(runner, place, how, folder):
    """A rule that never fired is reported at the end of the program, unless it
    says maybe."""
    output = write_bw(runner, place, how, folder, None,
                      "drop tx op=RC_FETCH_ADD; drop tx op=ack nth=1000 maybe")
    expect(output.count("never fired") == 1, output)
    expect("rxe_user: fault rule 1 (drop tx op=RC_FETCH_ADD) never fired: no "
           "packet matched it" in output, output)


def checks():
    """(text, function of runner, place and how)."""
    out = []
    for end, rules in (("client", WRITER_RULES), ("server", RECEIVER_RULES)):
        for rule, opcode, psn in rules:
            out.append((f"faults: {end}: {rule}",
                        one_packet(end, rule, opcode, psn)))
    for program, settings, end, rule in OTHER_RULES:
        out.append((f"faults: {end} of {program} {settings}: {rule}",
                    of_another_program(program, settings, end, rule)))
    for name in ("lossy", "wifi", "incast", "slow-peer", "flaky-link"):
        out.append((f"faults: the profile {name}", under_a_profile(name)))
    for end, rule, message in (
            ("client", "complete RETRY_EXC_ERR tx nth=5",
             "transport retry counter exceeded"),
            ("server", "complete LOC_PROT_ERR rx nth=5",
             "local protection error")):
        out.append((f"faults: {end}: {rule}",
                    completion_that_fails(end, rule, message)))
    for code, message in NAKS:
        out.append((f"faults: nak {code}", fatal_nak(code, message)))
    for function, text in (
            (named_by_both_ends, "an explanation of both ends"),
            (lost_acknowledgements, "all acknowledgements are lost"),
            (a_call_that_fails, "a call that fails"),
            (late_completions, "completions that are late"),
            (the_same_again, "the same faults again"),
            (rules_that_are_wrong, "rules that are wrong"),
            (a_rule_that_never_fires, "a rule that never fires")):
        out.append((f"faults: {text}", function))
    return out
