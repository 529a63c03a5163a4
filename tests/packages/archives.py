"""The archives of tools/package, from a layout of this test."""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

from places import Failure, loopback_place

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools", "packaging"))
import components  # noqa: E402
import wheel  # noqa: E402

ARCH = subprocess.run(["dpkg", "--print-architecture"], capture_output=True,
                      check=True, text=True).stdout.strip()


def expect(truth, text):
    if not truth:
        raise Failure(text)


def sh(*argv, **more):
    done = subprocess.run(argv, capture_output=True, text=True, **more)
    expect(done.returncode == 0, f"{argv}:\n{done.stdout}{done.stderr}")
    return done.stdout


def make_layout(folder):
    for name in ("bin", "lib", "libexec"):
        os.makedirs(os.path.join(folder, name), mode=0o700)
        os.chmod(os.path.join(folder, name), 0o700)
    for name, mode in (("bin/rxe-user", 0o700), ("lib/libibverbs.so.1", 0o600)):
        with open(os.path.join(folder, name), "w", encoding="ascii") as out:
            out.write("#!/bin/sh\n")
        os.chmod(os.path.join(folder, name), mode)


def pack(folder):
    """Packs as a user with umask 077. Returns the files."""
    layout = os.path.join(folder, "layout")
    make_layout(layout)
    return sh(os.path.join(ROOT, "tools", "package"), layout, "1.0", ARCH,
              os.path.join(folder, "packages"), umask=0o077).split()


def closed(members):
    """The files that only their owner may use."""
    for member in members:
        wanted = 0o555 if member.isdir() or member.mode & 0o100 else 0o444
        if not member.issym() and member.mode & wanted != wanted:
            yield f"{oct(member.mode)} {member.name}"


def test_modes(_prefix, folder):
    """everybody may use what a user with umask 077 has packed"""
    deb, tarball, *_ = pack(folder)
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


def test_sums(_prefix, folder):
    """SHA256SUMS has every file; the same layout makes the same files"""
    files = pack(folder)
    packages = os.path.join(folder, "packages")
    sh("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=packages)
    with open(os.path.join(packages, "SHA256SUMS")) as sums:
        first = sums.read()
    named = {line.split()[1] for line in first.splitlines()}
    expect(named == set(map(os.path.basename, files)), str(named))
    shutil.rmtree(packages)
    shutil.rmtree(os.path.join(folder, "layout"))
    pack(folder)
    with open(os.path.join(packages, "SHA256SUMS")) as sums:
        again = sums.read()
    # dpkg-deb writes the current time into its archive.
    differ = {line.split()[1] for line in
              set(first.splitlines()) ^ set(again.splitlines())}
    expect(not {name for name in differ
                if not name.endswith((".deb", ".spdx.json"))}, str(differ))


def test_bill(_prefix, folder):
    """the bill of materials is SPDX 2.3, and lists what is linked and packed"""
    *files, bill = pack(folder)
    with open(bill) as data:
        document = json.load(data)
    expect(document["spdxVersion"] == "SPDX-2.3" and
           document["dataLicense"] == "CC0-1.0" and
           document["SPDXID"] == "SPDXRef-DOCUMENT", "the head")
    for key in ("name", "documentNamespace", "creationInfo"):
        expect(document[key], key)
    packages = {part["SPDXID"]: part for part in document["packages"]}
    expect(len(packages) == len(document["packages"]), "an ID twice")
    for part in packages.values():
        for key in ("name", "versionInfo", "downloadLocation",
                    "licenseConcluded", "copyrightText"):
            expect(part[key], f"{part['name']}: {key}")
    for one in document["relationships"]:
        for key in ("spdxElementId", "relatedSpdxElement"):
            expect(one[key] in packages or one[key] == "SPDXRef-DOCUMENT",
                   str(one))
    sums = {part["packageFileName"]: part["checksums"][0]["checksumValue"]
            for part in packages.values() if "packageFileName" in part}
    expect(sums == {os.path.basename(file): components.sha256(file)
                    for file in files}, str(sums))
    related = {(one["relationshipType"],
                packages[one["relatedSpdxElement"]]["name"])
               for one in document["relationships"]}
    expect({("DYNAMIC_LINK", "ISA-L"), ("STATIC_LINK", "libnl"),
            ("STATIC_LINK", "Abseil"), ("STATIC_LINK", "libstdc++"),
            ("DESCRIBES", "rxe_user")} <= related, str(related))
    # Licences of others are packed where they require it.
    with tarfile.open(files[1]) as tarball:
        names = {os.path.basename(name) for name in tarball.getnames()
                 if "/licenses/" in name}
    expect(names == {package for _, package, _, packed
                     in components.COMPONENTS if packed} |
           set(components.REFERRED_TO), str(names))


def test_refused(_prefix, folder):
    """files that need a newer glibc, or an unusual library, are refused"""
    for flags, code, why in (
            ([], "int gettid(void); int f(void) { return gettid(); }",
             "wants glibc 2.30"),
            (["-Wl,--no-as-needed", "-l:libpcap.so.0.8"], "int f;",
             "wants libpcap.so.0.8")):
        layout = os.path.join(folder, "layout")
        make_layout(layout)
        sh("gcc", "-shared", "-fPIC", "-x", "c", "-", "-o",
           layout + "/lib/libf.so.1", *flags, input=code)
        done = subprocess.run(
            [os.path.join(ROOT, "tools", "package"), "--check", layout, ARCH],
            capture_output=True, text=True)
        expect(done.returncode == 1 and why in done.stderr,
               f"{why}: {done.returncode} {done.stderr}")
        shutil.rmtree(layout)


def check_record(file):
    with zipfile.ZipFile(file) as opened:
        (record,) = (name for name in opened.namelist()
                     if name.endswith(".dist-info/RECORD"))
        lines = opened.read(record).decode().splitlines()
        rows = {name: (digest, size) for name, digest, size in
                (line.rsplit(",", 2) for line in lines)}
        expect(set(rows) == set(opened.namelist()), "RECORD has other files")
        for name, (digest, size) in rows.items():
            if name == record:
                continue
            data = opened.read(name)
            expected = base64.urlsafe_b64encode(
                hashlib.sha256(data).digest()).decode().rstrip("=")
            expect(digest == "sha256=" + expected and int(size) == len(data),
                   name)


def test_wheel(prefix, folder):
    """pip installs the wheel without network, and its command is the program"""
    tree = os.path.join(folder, "tree")
    shutil.copytree(prefix, tree, ignore=lambda path, names: [
        name for name in names if path == prefix and
        name not in ("bin", "lib", "libexec")])
    for name in ("LICENSE", "README.md"):
        shutil.copy(os.path.join(ROOT, name), tree)
    file = wheel.write_wheel(tree, "1.0", ARCH, (2, 28), folder)
    check_record(file)
    venv = os.path.join(folder, "venv")
    sh(sys.executable, "-m", "venv", venv)
    sh(venv + "/bin/pip", "install", "--no-index", file)
    inside = ["ip", "netns", "exec", loopback_place().server.netns]
    command = venv + "/bin/rxe-user"
    text = sh(*inside, command, "run", "--", "ibv_devinfo")
    expect("rxeu0" in text and "PORT_ACTIVE" in text, text)
    # One process throughout: signals and status are its own.
    process = subprocess.Popen(
        [command, "run", "--", "sh", "-c", "echo $$; exit 42"],
        stdout=subprocess.PIPE, text=True)
    text, _ = process.communicate(timeout=60)
    expect(process.returncode == 42 and text.strip() == str(process.pid),
           f"{process.pid}: {process.returncode} {text}")
    # Like an installer that drops permissions.
    (module,) = sh(venv + "/bin/python", "-c",
                   "import rxe_user; print(rxe_user.PREFIX)").split()
    os.chmod(module + "/bin/rxe-user", 0o644)
    expect("rxe-user" in sh(command, "--version"), "without permission")


TESTS = [test_modes, test_sums, test_bill, test_refused, test_wheel]
