"""The archives of tools/package, from a layout of this test."""

import os
import subprocess
import sys
import tarfile

from places import Failure

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))


def make_layout(folder):
    for name in ("bin", "lib", "libexec"):
        os.makedirs(os.path.join(folder, name), mode=0o700)
        os.chmod(os.path.join(folder, name), 0o700)
    for name, mode in (("bin/rxe-user", 0o700), ("lib/libibverbs.so.1", 0o600)):
        with open(os.path.join(folder, name), "w", encoding="ascii") as out:
            out.write("#!/bin/sh\n")
        os.chmod(os.path.join(folder, name), mode)


def closed(members):
    """Those that only their owner may use."""
    for member in members:
        wanted = 0o555 if member.isdir() or member.mode & 0o100 else 0o444
        if not member.issym() and member.mode & wanted != wanted:
            yield f"{oct(member.mode)} {member.name}"


def test_modes(_prefix, folder):
    """everybody may use what a user with umask 077 has packed"""
    layout = os.path.join(folder, "layout")
    make_layout(layout)
    done = subprocess.run(
        [sys.executable, os.path.join(ROOT, "tools", "package"), layout, "1.0",
         folder], capture_output=True, text=True, umask=0o077)
    if done.returncode:
        raise Failure(done.stdout + done.stderr)
    deb, tarball, _ = done.stdout.split()
    files = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb],
                           capture_output=True, check=True).stdout
    data = os.path.join(folder, "files.tar")
    with open(data, "wb") as out:
        out.write(files)
    for archive in (data, tarball):
        with tarfile.open(archive) as opened:
            bad = list(closed(opened.getmembers()))
        if bad:
            raise Failure(f"{archive}:\n" + "\n".join(bad))


TESTS = [test_modes]
