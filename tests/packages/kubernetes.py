"""The Kubernetes device plugin against a kubelet of our own, over Unix sockets,
and what a container runtime makes of its answers. The kubelet here knows
protobuf by itself, so that a wrong field number does not pass."""

import concurrent.futures
import json
import os
import queue
import signal
import subprocess
import sys

import grpc
import yaml

from places import NOBODY, Failure, await_listen, veth_place

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__)))), "tools/packaging"))
import wheel  # noqa: E402

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__)))), "tools/packaging/kubernetes")
LIMIT = 30
RESOURCE = "rdma/hca_shared_devices_a"


def expect(truth, text):
    if not truth:
        raise Failure(text)


# --- protobuf's wire format, as far as it is needed: numbers and byte strings


def number(value):
    out = b""
    while value > 0x7f:
        out += bytes([value & 0x7f | 0x80])
        value >>= 7
    return out + bytes([value])


def field(key, data):
    return number(key << 3 | 2) + number(len(data)) + data


def fields(data):
    """Field number: all its values, in order."""
    found = {}

    def take():
        nonlocal data
        value = shift = 0
        while True:
            byte, data = data[0], data[1:]
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value
    while data:
        tag = take()
        value = take()
        if tag & 7 == 2:
            value, data = data[:value], data[value:]
        else:
            expect(tag & 7 == 0, f"wire type {tag & 7}")
        found.setdefault(tag >> 3, []).append(value)
    return found


def text(message, key):
    return message.get(key, [b""])[0].decode()


class Kubelet:
    """Serves Register on kubelet.sock, and calls the plugins that register."""

    def __init__(self, folder):
        self.folder = folder
        self.registered = queue.Queue()
        # A kubelet removes the old sockets when it starts.
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        self.server.add_generic_rpc_handlers((
            grpc.method_handlers_generic_handler("v1beta1.Registration", {
                "Register": grpc.unary_unary_rpc_method_handler(
                    self.register)}),))
        self.server.add_insecure_port(f"unix:{folder}/kubelet.sock")
        self.server.start()

    def register(self, request, _context):
        self.registered.put(fields(request))
        return b""

    def next(self):
        """The next plugin that registers: a channel to it, and its resource."""
        request = self.registered.get(timeout=LIMIT)
        expect(text(request, 1) == "v1beta1", str(request))
        endpoint = text(request, 2)
        expect("/" not in endpoint, endpoint)
        return (grpc.insecure_channel(f"unix:{self.folder}/{endpoint}"),
                text(request, 3))

    def stop(self):
        self.server.stop(0).wait()


def call(channel, method, request):
    return fields(channel.unary_unary(f"/v1beta1.DevicePlugin/{method}")(
        request, timeout=LIMIT))


def watch(channel):
    stream = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")(b"")
    devices = [fields(data) for data in fields(next(stream))[1]]
    expect(all(text(device, 2) == "Healthy" for device in devices),
           "not healthy")
    return stream, [text(device, 1) for device in devices]


def allocate(channel, *containers):
    request = b"".join(field(1, b"".join(field(1, id.encode()) for id in ids))
                       for ids in containers)
    return [fields(data) for data in call(channel, "Allocate", request)[1]]


class Plugin:
    def __init__(self, folder, *args):
        self.plugins = os.path.join(folder, "device-plugins")
        self.cdi = os.path.join(folder, "cdi")
        os.makedirs(self.plugins, exist_ok=True)
        self.process = subprocess.Popen(
            [os.path.join(FOLDER, "device_plugin"), "--plugin-dir",
             self.plugins, "--cdi-dir", self.cdi, *args],
            stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            _, said = self.process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        if kind is None:
            expect(self.process.returncode == 0,
                   f"status {self.process.returncode}\n{said}")


# --- the container runtime's part


def environment(answer):
    pairs = [fields(data) for data in answer.get(1, [])]
    return {text(pair, 1): text(pair, 2) for pair in pairs}


def mounts(answer):
    """(host path, container path) of the mounts."""
    found = []
    for mount in map(fields, answer.get(2, [])):
        expect(mount.get(3) == [1], "a mount that can be written to")
        found.append((text(mount, 2), text(mount, 1)))
    return found


def resolve(name, folder):
    """CDI: the environment and the mounts of a device by its full name."""
    kind, device = name.split("=")
    for file in os.listdir(folder):
        expect(file.endswith(".json"), file)
        with open(os.path.join(folder, file)) as data:
            specification = json.load(data)
        if specification["kind"] != kind:
            continue
        expect(specification["cdiVersion"] == "0.3.0", "CDI version")
        (edits,) = (one["containerEdits"] for one in specification["devices"]
                    if one["name"] == device)
        expect(set(edits) == {"env", "mounts"}, str(edits))
        for mount in edits["mounts"]:
            expect("ro" in mount["options"], str(mount))
        return (dict(pair.split("=", 1) for pair in edits["env"]),
                [(mount["hostPath"], mount["containerPath"])
                 for mount in edits["mounts"]])
    raise Failure(f"no specification has {name}")


def container(netns, env, binds, *argv):
    """A process in a container: its own mounts, user nobody, no capability."""
    script = "mount -t tmpfs none /opt\n"
    for host, inside in binds:
        script += (f"mkdir -p {inside}\nmount --bind {host} {inside}\n"
                   f"mount -o remount,bind,ro {inside}\n")
    return subprocess.Popen(
        ["ip", "netns", "exec", netns, "unshare", "--mount", "sh", "-ec",
         script + 'exec "$@"', "-", "setpriv", "--reuid", str(NOBODY),
         "--regid", str(NOBODY), "--clear-groups", "--no-new-privs",
         "--bounding-set=-all", "env", "-i", "PATH=/usr/bin:/bin",
         *(f"{name}={value}" for name, value in env.items()), *argv],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True)


def finished(process):
    said, _ = process.communicate(timeout=LIMIT)
    expect(process.returncode == 0, said)
    return said


def use(env, binds):
    """Two pods with interfaces of their own."""
    place = veth_place(1500)
    argv = ["ib_write_bw", "-d", "rxe_0", "-x", "0", "-n", "100"]
    shown = finished(container(place.client.netns, env, binds, "sh", "-c",
                               "ibv_devinfo; ls /sys/class/infiniband"))
    expect(shown.count("rxe_0") == 2 and "PORT_ACTIVE" in shown, shown)
    server = container(place.server.netns, env, binds, *argv)
    await_listen(server, 18515)
    finished(container(place.client.netns, env, binds, *argv,
                       place.server.ipv4))
    finished(server)


# --- the tests


def manifest():
    with open(os.path.join(FOLDER, "daemonset.yaml")) as file:
        pod = yaml.safe_load(file)["spec"]["template"]["spec"]
    (plugin,) = pod["containers"]
    expect("privileged" not in str(pod), "privileged")
    paths = {volume["name"]: volume["hostPath"]["path"]
             for volume in pod["volumes"]}
    # The plugin names folders of the host as it sees them.
    for mount in plugin["volumeMounts"]:
        expect(mount["mountPath"] == paths[mount["name"]], str(mount))
    return plugin["args"], paths


def as_deployed(prefix, folder):
    """with the arguments of daemonset.yaml, pods run programs"""
    args, paths = manifest()
    with Plugin(folder, *args) as plugin:
        kubelet = Kubelet(plugin.plugins)
        channel, resource = kubelet.next()
        expect(resource == RESOURCE, resource)
        options = call(channel, "GetDevicePluginOptions", b"")
        expect(not any(map(any, options.values())), str(options))
        stream, ids = watch(channel)
        expect(len(ids) == len(set(ids)) == 100, str(ids))
        first, second = allocate(channel, ids[:1], ids[1:3])
        expect(set(first) == {1, 2}, str(first))
        expect(environment(first) == environment(second), "another environment")
        (mount,) = mounts(first)
        expect(mount == (paths["libraries"], "/opt/rxe_user"), str(mount))
        env = environment(first)
        expect(env["RXE_USER_DEVICES"] == "rxe_0=eth0", str(env))
        use({**env, "RXE_USER_DEVICES": "rxe_0=veth0"}, [(prefix, mount[1])])
        stream.cancel()
        kubelet.stop()


def by_cdi(prefix, folder):
    """with --strategy cdi, an answer names a device that is specified"""
    with Plugin(folder, "--strategy", "cdi", "--host-path", prefix,
                "--devices", "rxe_0=veth0") as plugin:
        kubelet = Kubelet(plugin.plugins)
        channel, _ = kubelet.next()
        _, ids = watch(channel)
        (answer,) = allocate(channel, ids[:2])
        expect(set(answer) == {5}, str(answer))
        (device,) = map(fields, answer[5])
        use(*resolve(text(device, 1), plugin.cdi))
        kubelet.stop()


def several(_prefix, folder):
    """several resources; a kubelet that is started again; bad requests"""
    wanted = {"rdma/hca_a": 3, "rdma/hca_b": 5}
    with Plugin(folder, *(f"--resource={name}={count}"
                          for name, count in wanted.items())) as plugin:
        for _ in range(2):
            kubelet = Kubelet(plugin.plugins)
            found = {}
            for _ in wanted:
                channel, resource = kubelet.next()
                stream, ids = watch(channel)
                found[resource] = len(ids)
                for request, code in (
                        (field(1, field(1, b"none")), "INVALID_ARGUMENT"),
                        (b"\xff" * 20, "INTERNAL")):
                    try:
                        call(channel, "Allocate", request)
                        raise Failure("it was answered")
                    except grpc.RpcError as error:
                        expect(error.code().name == code, str(error))
                expect(len(allocate(channel, ids)) == 1, "after bad requests")
            expect(found == wanted, str(found))
            kubelet.stop()


def architectures(_prefix, _folder):
    """the DaemonSet goes to nodes for which there are packages, and no others"""
    with open(os.path.join(FOLDER, "daemonset.yaml")) as file:
        pod = yaml.safe_load(file)["spec"]["template"]["spec"]
    required = pod["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    rules = {rule["key"]: rule for rule in term["matchExpressions"]}
    expect(all(rule["operator"] == "In" for rule in rules.values()), str(rules))
    expect(rules["kubernetes.io/os"]["values"] == ["linux"], str(rules))
    expect(set(rules["kubernetes.io/arch"]["values"]) == set(wheel.MACHINES),
           str(rules))


def refused(_prefix, folder):
    """wrong arguments, and a node without a kubelet's folder"""
    for args, why in ((["--resource", "rdma=1"], "DOMAIN/NAME=COUNT"),
                      (["--resource", "a/b=0"], "DOMAIN/NAME=COUNT"),
                      (["--resource=a/b=1", "--resource=a/b=2"], "twice"),
                      (["--plugin-dir", folder + "/none"], "cannot watch")):
        done = subprocess.run(
            [os.path.join(FOLDER, "device_plugin"), *args],
            capture_output=True, text=True, timeout=LIMIT)
        expect(done.returncode != 0 and why in done.stderr, done.stderr)


TESTS = [as_deployed, by_cdi, several, architectures, refused]
