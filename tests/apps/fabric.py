"""libfabric: fi_info, and fi_pingpong with verified contents.

libfabric's verbs provider ignores the loopback interface, but asks the RDMA CM
for the device of "localhost". There must be none, or it only uses that device.
"""

import places
from applications import (OWN, VETH_1500, VETH_9000, Check, expect, pair,
                          with_environment)
from places import How

NAME = "libfabric"
PROGRAMS = ("fi_info", "fi_pingpong")
PORT = 47592
SPOTS = ((OWN, How("nobody")), (VETH_1500, How()), (VETH_9000, How("nobody")),
         (OWN, How()))


def only(device, side):
    """The variable that makes the device of `side` the only one."""
    return {"RXE_USER_DEVICES": f"{device}={side.device_of}"}


def _info(runner, place, how):
    for side in (place.server, place.client):
        device, _ = runner.device_and_gid(side, how.family)

        def ask(*options):
            argv = with_environment(only(device, side),
                                    ["fi_info", "-p"] + list(options))
            return places.finish(runner.start(side, how, argv), "fi_info")

        expect(ask("verbs"), f"domain: {device}\n",
               f"domain: {device}-dgram\n", "type: FI_EP_MSG",
               "type: FI_EP_DGRAM")
        expect(ask("verbs;ofi_rxm", "-t", "FI_EP_RDM"), f"domain: {device}\n",
               "type: FI_EP_RDM")


def _pingpong(provider, endpoint, options):
    def run(runner, place, how):
        def argv(side):
            device, _ = runner.device_and_gid(side, how.family)
            suffix = "-dgram" if endpoint == "dgram" else ""
            return with_environment(only(device, side), [
                "fi_pingpong", "-p", provider, "-e", endpoint, "-d",
                device + suffix, "-c"] + options)

        said, _ = pair(runner, place, how,
                       argv(place.server) + ["-B", str(PORT)],
                       argv(place.client) + ["-P", str(PORT),
                                             place.server.ipv4], PORT)
        expect(said, "usec/xfer")

    return run


def checks():
    out = [Check("fi_info -p verbs", _info, True, SPOTS)]
    for provider, endpoint, modes in (
            ("verbs", "msg", ("msg",)),
            ("verbs;ofi_rxm", "rdm", ("msg", "tagged")),
            ("verbs", "dgram", ("msg",))):
        for mode in modes:
            for size, n in (("all", 10), ("64", 1000), ("1048576", 50)):
                if endpoint == "dgram" and size == "1048576":
                    continue
                options = ["-m", mode, "-S", size, "-I", str(n)]
                out.append(Check(
                    f"fi_pingpong -p {provider} -e {endpoint} "
                    + " ".join(options), _pingpong(provider, endpoint, options),
                    size == "all" and mode == "msg", SPOTS))
    return out
