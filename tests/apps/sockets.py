"""Files sent over rsockets: rcopy, and TCP programs under rxe-user run
--sockets. Received files must be correct.

Nothing listens on the TCP port meanwhile, which shows that RDMA was used.
"""

import hashlib
import os
import re
import shutil
import tempfile

import places
from places import Failure

SIZE = 100 * 1000 * 1000
NOBODY_LISTENS = re.compile(
    r"[Cc]onnection refused|Couldn't connect|ConnectionRefused|"
    r"rpoll: Operation now in progress")


class Files:
    """A folder for all users, with a file `sent` of random bytes."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="rxe_user-sockets-")
        os.chmod(self.folder, 0o777)
        data = os.urandom(SIZE // 100) * 100
        self.checksum = hashlib.sha256(data).digest()
        with open(self.path("sent"), "wb") as f:
            f.write(data)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def check(self, name="received"):
        with open(self.path(name), "rb") as f:
            if hashlib.sha256(f.read()).digest() != self.checksum:
                raise Failure("what was received is not what was sent")


def _pair(runner, place, how, server_argv, client_argv, options, port=None):
    """Runs both, and the client again while nothing listens. Ends the server.
    Returns the client's output."""
    server = runner.start(place.server, how, server_argv, options)
    try:
        text = places.finish_once_heard(
            lambda: runner.start(place.client, how, client_argv, options),
            server, NOBODY_LISTENS)
        if port is not None and places.listens(server.pid, port):
            raise Failure(f"the server listens on TCP port {port}")
        return text
    except Failure as e:
        raise Failure(f"{e}\nthe server {places.last_words(server)}") from e
    finally:
        places.end(server)


def _address(place, how):
    return place.server.ipv4 if how.family == 4 else place.server.ipv6


def rcopy_of_a_file(runner, place, how):
    # rcopy splits its argument at colons: no IPv6 addresses.
    with Files() as files:
        _pair(runner, place, how, ["rcopy"],
              ["rcopy", files.path("sent"),
               f"{place.server.ipv4}:{files.path('received')}"], [])
        files.check()


def curl_from_a_server_in_Python(runner, place, how):
    port = 8017
    address = _address(place, how)
    host = f"[{address}]" if how.family == 6 else address
    with Files() as files:
        _pair(runner, place, how,
              ["python3", "-m", "http.server", str(port), "--bind", address,
               "--directory", files.folder],
              ["curl", "-sS", "-o", files.path("received"),
               f"http://{host}:{port}/sent"], ["--sockets"], port)
        files.check()


# asyncio waits with epoll(7). The server echoes until the client has closed
# its half.
ECHO_SERVER = """
import asyncio, sys
async def echo(reader, writer):
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(echo, sys.argv[1], int(sys.argv[2]))
    await server.serve_forever()
asyncio.run(main())
"""
ECHO_CLIENT = """
import asyncio, os, sys
async def one(data):
    reader, writer = await asyncio.open_connection(sys.argv[1],
                                                   int(sys.argv[2]))
    async def send():
        writer.write(data)
        await writer.drain()
        writer.write_eof()
    sent = asyncio.create_task(send())
    received = await reader.read()
    await sent
    writer.close()
    assert received == data, len(received)
async def main():
    await asyncio.gather(*(one(os.urandom(2000000)) for _ in range(8)))
asyncio.run(main())
"""


def eight_connections_of_asyncio(runner, place, how):
    address = [_address(place, how), "8018"]
    _pair(runner, place, how, ["python3", "-c", ECHO_SERVER] + address,
          ["python3", "-c", ECHO_CLIENT] + address, ["--sockets"], 8018)


# More than the client's buffer holds, less than that plus the local sockets:
# both processes of the server end while a part is still to be carried. The
# rest arrives, although the client first waits for some time for an end of the
# stream, which must not come early.
FORKING_SERVER = """
import os, socket, sys
host, port = sys.argv[1:]
server = socket.create_server(
    (host, int(port)),
    family=socket.AF_INET6 if ":" in host else socket.AF_INET)
connection, _ = server.accept()
if (child := os.fork()) == 0:
    connection.sendall(bytes(range(250)) * 1200)
    os._exit(0)
connection.close()
assert os.waitpid(child, 0)[1] == 0
"""
SLOW_CLIENT = """
import select, socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
poll = select.poll()
poll.register(connection, select.POLLRDHUP)
assert poll.poll(1000) == [], "the end comes before the rest"
received = bytearray()
while data := connection.recv(1 << 16):
    received += data
assert received == bytes(range(250)) * 1200, len(received)
"""


def a_server_that_forks_and_ends(runner, place, how):
    address = [_address(place, how), "8019"]
    _pair(runner, place, how,
          ["env", "RDMAV_FORK_SAFE=1", "python3", "-c", FORKING_SERVER] +
          address, ["python3", "-c", SLOW_CLIENT] + address, ["--sockets"])


def rstream_that_forks(runner, place, how):
    rstream = ["env", "RDMAV_FORK_SAFE=1", "rstream", "-T", "f", "-T", "v",
               "-I", "20", "-C", "10"]
    address = _address(place, how)
    _pair(runner, place, how, rstream + ["-b", address],
          rstream + ["-s", address], ["--sockets"])


# Most tests of network code are such programs.
BOTH_ENDS = """
import os, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
listener = socket.create_server((sys.argv[1], 0), family=family)
clients = [socket.create_connection(listener.getsockname()[:2])
           for _ in range(8)]
for n, client in enumerate(clients):
    client.sendall(b"%d" % n)
for n, client in enumerate(clients):
    server, address = listener.accept()
    assert address[1] == client.getsockname()[1]
    assert server.recv(10) == b"%d" % n
    server.sendall(b"back")
    server.close()
    assert client.recv(10) == b"back"
    assert client.recv(10) == b""
    # Fails without RDMA: RDMA_SQSIZE.
    client.getsockopt(0x10000, 0)
"""


def both_ends_in_one_thread(runner, place, how):
    program = runner.start(place.server, how,
                           ["python3", "-c", BOTH_ENDS, _address(place, how)],
                           ["--sockets"])
    try:
        places.finish(program, "the program")
    finally:
        places.end(program)


# With the address families that each supports.
ALL = ((rcopy_of_a_file, (4,)), (curl_from_a_server_in_Python, (4, 6)),
       (eight_connections_of_asyncio, (4, 6)), (rstream_that_forks, (4, 6)),
       (a_server_that_forks_and_ends, (4, 6)),
       (both_ends_in_one_thread, (4, 6)))
