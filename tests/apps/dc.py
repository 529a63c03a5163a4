"""perftest over DC (Dynamically Connected), on devices that look like mlx5."""

import applications
import cells
import places
from applications import Check

NAME = "dc"
PROGRAMS = ("ib_write_bw", "ib_atomic_lat")
PORT = 18815


def _run(cell):
    def run(runner, place, how):
        ds, gs = runner.device_and_gid(place.server, how.family)
        dc, gc = runner.device_and_gid(place.client, how.family)

        def argv(device, gid):
            return [cell.program, "-c", "DC", "-d", device, "-x", str(gid),
                    "-F", "-p", str(PORT), *cell.options]

        server = runner.start(place.server, how, argv(ds, gs), ("--mlx5",))
        client = None
        try:
            places.await_listen(server, PORT)
            client = runner.start(place.client, how,
                                  argv(dc, gc) + [place.server.ipv4],
                                  ("--mlx5",))
            said = places.finish(client, "the client")
            places.finish(server, "the server")
            places.perftest_row(said)
            applications.expect(said, "Connection type : DC")
        except places.Failure as e:
            raise places.Failure(
                f"{e}\nthe server {places.last_words(server)}") from e
        finally:
            for process in (server, client):
                if process:
                    places.end(process)

    return run


def _ends_in_error(cell):
    # Except for WRITE, perftest 4.5 leaves the receive CQ of a DC test. With
    # events its completion channel then is in use, and cannot be destroyed.
    return "-e" in cell.options and not cell.program.startswith("ib_write")


def checks():
    out = []
    for cell in cells.single_switch_cells():
        if _ends_in_error(cell):
            continue
        plain = not any(o in cell.options for o in
                        ("-a", "-b", "-e", "-q", "-I", "--use-srq", "-D"))
        out.append(Check(f"{cell} -c DC", _run(cell), plain))
    return out
