"""Packs a Python wheel: the tree of the tarball as data of the package rxe_user,
and the command rxe-user, which executes the program in that tree."""

import base64
import hashlib
import os
import zipfile

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
TIME = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip archive can hold

MODULE = '''\
"""An RDMA NIC in a shared library: `rxe-user run -- COMMAND`."""

import os
import sys

PREFIX = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tree")


def _executable(file):
    """Some installers leave the permission out."""
    if not os.access(file, os.X_OK):
        try:
            os.chmod(file, 0o755)
        except OSError as error:
            sys.exit(f"rxe_user: {file} is not executable ({error.strerror}); "
                     f"as its owner: chmod 755 {file}")


def main():
    """Does not return: the program takes the place of this process."""
    for name in ("libexec/rxe-user-port-broker", "libexec/commands/rdma",
                 "bin/rxe-user"):
        _executable(os.path.join(PREFIX, name))
    program = os.path.join(PREFIX, "bin/rxe-user")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
'''

METADATA = '''\
Metadata-Version: 2.1
Name: rxe-user
Version: {version}
Summary: An RDMA NIC in a shared library
License: BSD-2-Clause
Platform: Linux
Requires-Python: >=3.6
Description-Content-Type: text/markdown

'''


def write_wheel(tree, version, arch, glibc, destination):
    """Packs `tree`, without changing it, and returns the file."""
    tag = "py3-none-manylinux_{}_{}_{}".format(*glibc, MACHINES[arch])
    file = os.path.join(destination, f"rxe_user-{version}-{tag}.whl")
    info = f"rxe_user-{version}.dist-info"
    record = []
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out:
        def add(name, data, mode=0o644):
            member = zipfile.ZipInfo(name, TIME)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = (0o100000 | mode) << 16
            out.writestr(member, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
            record.append(f"{name},sha256={digest.decode().rstrip('=')},"
                          f"{len(data)}\n")

        add("rxe_user/__init__.py", MODULE.encode())
        add("rxe_user/__main__.py",
            b"from rxe_user import main\n\nmain()\n")
        for path, folders, names in os.walk(tree):
            folders.sort()
            for name in sorted(names):
                source = os.path.join(path, name)
                with open(source, "rb") as data:
                    add("rxe_user/tree/" + os.path.relpath(source, tree),
                        data.read(), os.stat(source).st_mode & 0o777)
        with open(os.path.join(tree, "LICENSE"), "rb") as data:
            add(f"{info}/LICENSE", data.read())
        with open(os.path.join(tree, "README.md"), "rb") as data:
            add(f"{info}/METADATA",
                METADATA.format(version=version).encode() + data.read())
        add(f"{info}/entry_points.txt",
            b"[console_scripts]\nrxe-user = rxe_user:main\n")
        add(f"{info}/WHEEL", (
            "Wheel-Version: 1.0\nGenerator: tools/package\n"
            f"Root-Is-Purelib: false\nTag: {tag}\n").encode())
        record.append(f"{info}/RECORD,,\n")
        member = zipfile.ZipInfo(f"{info}/RECORD", TIME)
        member.external_attr = 0o100644 << 16
        out.writestr(member, "".join(record))
    return file
