"""The GitHub Action, whose steps are run as a runner runs them: scripts of bash
with the environment that action.yml says, files for what they hand on, and an
ordinary user. Then the steps of a job that uses it."""

import functools
import http.server
import os
import re
import subprocess
import tarfile
import threading
import time

import yaml

from places import NOBODY, Failure, await_listen, loopback_place, veth_place

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__)))), "tools/packaging/action")
LIMIT = 60
READY_WITHIN = 5  # seconds


def expect(truth, text):
    if not truth:
        raise Failure(text)


def pack(prefix, folder):
    """Packs a tarball like that of tools/dev package from `prefix`."""
    file = os.path.join(folder, "rxe_user-9.8.7-amd64.tar.gz")
    with tarfile.open(file, "w:gz", compresslevel=1) as tar:
        for name in ("bin", "lib", "libexec"):
            tar.add(os.path.join(prefix, name), f"rxe_user-9.8.7-amd64/{name}")
    return file


class Job:
    """The state that a runner keeps between steps."""

    def __init__(self, folder, netns):
        self.netns = netns
        self.temp = os.path.join(folder, "temp")
        os.mkdir(self.temp)
        os.chown(self.temp, NOBODY, NOBODY)
        self.env = {"RUNNER_TEMP": self.temp, "HOME": self.temp}
        self.path = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]

    def start(self, script, env):
        # The command line of `shell: bash`.
        return subprocess.Popen(
            ["ip", "netns", "exec", self.netns, "setpriv", "--reuid",
             str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "env", "-i",
             *(f"{name}={value}" for name, value in env.items()),
             "/usr/bin/bash", "--noprofile", "--norc", "-eo", "pipefail", "-c",
             script],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)

    def step(self, script, env=None):
        """Runs a step. Returns status, output, and its additions to
        GITHUB_OUTPUT."""
        files = {}
        for name in ("ENV", "PATH", "OUTPUT"):
            files[name] = os.path.join(self.temp, f"step-{name}")
            with open(files[name], "w") as file:
                os.fchown(file.fileno(), NOBODY, NOBODY)
        process = self.start(script, {
            **self.env, "PATH": ":".join(self.path), **(env or {}),
            **{f"GITHUB_{name}": file for name, file in files.items()}})
        text, _ = process.communicate(timeout=LIMIT)

        def pairs(name):
            with open(files[name]) as lines:
                return dict(line.rstrip("\n").split("=", 1) for line in lines)
        self.env.update(pairs("ENV"))
        with open(files["PATH"]) as lines:
            self.path[:0] = lines.read().split()[::-1]
        return process.returncode, text, pairs("OUTPUT")

    def succeed(self, script):
        status, text, _ = self.step(script)
        expect(status == 0, f"{script}: status {status}\n{text}")
        return text


def use(job, ref="main", **inputs):
    """`uses:` of the action. Returns status, output, outputs."""
    with open(os.path.join(FOLDER, "action.yml")) as file:
        action = yaml.safe_load(file)
    expect(action["runs"]["using"] == "composite", "not a composite action")
    known = action["inputs"]
    expect(set(inputs) <= set(known), f"no such input: {inputs}")
    values = {f"inputs.{name}": inputs.get(name, known[name]["default"])
              for name in known}
    values.update({"github.action_repository": "owner/rxe_user",
                   "github.action_ref": ref})

    def evaluate(text):
        return re.sub(r"\$\{\{ *([\w.-]+) *\}\}",
                      lambda match: values[match[1]], text)
    log = ""
    for step in action["runs"]["steps"]:
        expect(step["shell"] == "bash", "another shell")
        env = {name: evaluate(text) for name, text in step["env"].items()}
        status, text, outputs = job.step(
            evaluate(step["run"]), {**env, "GITHUB_ACTION_PATH": FOLDER})
        log += text
        if status:
            return status, log, {}
        values.update({f"steps.{step['id']}.outputs.{name}": value
                       for name, value in outputs.items()})
    return 0, log, {name: evaluate(output["value"])
                    for name, output in action["outputs"].items()}


def used(job, **inputs):
    begin = time.monotonic()
    status, text, outputs = use(job, **inputs)
    took = time.monotonic() - begin
    expect(status == 0, text)
    expect(took < READY_WITHIN, f"ready after {took:.1f} s")
    return outputs


def bandwidth(job, device):
    """A step that does not mention rxe_user."""
    env = {**job.env, "PATH": ":".join(job.path)}
    command = f"ib_write_bw -d {device} -x 0 -s 65536 -n 100"
    server = job.start(command, env)
    await_listen(server, 18515)
    job.succeed(f"{command} $(cat {job.temp}/address)")
    text, _ = server.communicate(timeout=LIMIT)
    expect(server.returncode == 0, text)


def say_address(job, address):
    with open(os.path.join(job.temp, "address"), "w") as file:
        file.write(address)


def by_default(prefix, folder):
    """rxe_0 on the first interface, for all further steps, within 5 s"""
    side = veth_place(1500).server
    job = Job(folder, side.netns)
    say_address(job, side.ipv4)
    outputs = used(job, package=pack(prefix, folder))
    expect(outputs == {"device-name": "rxe_0", "interface": "veth0"},
           str(outputs))
    text = job.succeed("ibv_devinfo -d rxe_0")
    expect("PORT_ACTIVE" in text, text)
    listed = job.succeed("ibv_devices; ls /sys/class/infiniband; rdma link")
    expect(listed.count("rxe_0") >= 3 and "lo" not in listed.split(), listed)
    expect("rxe_0" in job.succeed("rxe-user devices"), "rxe-user")
    bandwidth(job, "rxe_0")


def by_name(prefix, folder):
    """the inputs interface and device-name; the package by a URL"""
    side = loopback_place().server
    job = Job(folder, side.netns)
    say_address(job, side.ipv4)
    pack(prefix, folder)
    with InNamespace(side.netns):
        server = http.server.ThreadingHTTPServer(
            (side.ipv4, 0), functools.partial(Quiet, directory=folder))
    with server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = "http://%s:%d/rxe_user-9.8.7-amd64.tar.gz" % \
                server.server_address
            outputs = used(job, interface="lo", package=url,
                           **{"device-name": "soft"})
            status, text, _ = use(job, interface="lo", package=url + ".none")
        finally:
            server.shutdown()
            thread.join()
    expect(status != 0 and "::error" in text and "cannot get" in text, text)
    expect(outputs == {"device-name": "soft", "interface": "lo"}, str(outputs))
    bandwidth(job, "soft")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class InNamespace:
    """Puts this thread into a namespace while it creates sockets."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.before = os.open("/proc/self/ns/net", os.O_RDONLY)
        fd = os.open(f"/run/netns/{self.name}", os.O_RDONLY)
        set_namespace(fd)
        os.close(fd)

    def __exit__(self, *_):
        set_namespace(self.before)
        os.close(self.before)


def set_namespace(fd):
    import ctypes
    if ctypes.CDLL(None, use_errno=True).setns(fd, 0):
        raise OSError(ctypes.get_errno(), "setns")


def refused(prefix, folder):
    """what cannot be is an error of the step that says why"""
    job = Job(folder, loopback_place().server.netns)
    package = pack(prefix, folder)
    for inputs, why in (
            ({"interface": "nope", "package": package}, "nope"),
            ({"package": folder + "/none.tar.gz"}, "cannot unpack"),
            ({"package": package, "device-name": "a b"}, "a b"),
            ({}, "set the input 'package'"),
    ):
        status, text, _ = use(job, **inputs)
        expect(status != 0 and re.search(rf"::error.*{why}", text),
               f"{inputs}: status {status}\n{text}")
    expect("RXE_USER_DEVICES" not in job.env, "an environment nevertheless")


def architecture(_prefix, folder):
    """the package is that of the runner's architecture"""
    job = Job(folder, loopback_place().server.netns)
    # Names cannot be resolved in this namespace, so the error shows the URL.
    for runner, arch in (("X64", "amd64"), ("ARM64", "arm64")):
        job.env["RUNNER_ARCH"] = runner
        status, text, _ = use(job, ref="v9.8.7")
        expect(status != 0 and
               f"/download/v9.8.7/rxe_user-9.8.7-{arch}.tar.gz" in text, text)
    job.env["RUNNER_ARCH"] = "X86"
    status, text, _ = use(job, ref="v9.8.7")
    expect(status != 0 and "no package for X86" in text, text)


TESTS = [by_default, by_name, refused, architecture]
