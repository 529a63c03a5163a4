"""The guest's kernel and initial file system, made from Debian packages.

The kernel is from Debian's own package, which is downloaded once and unpacked
into a folder, not installed. The file system is an archive that is built for
each run (about a second): busybox, the needed kernel modules with their
dependencies, and programs of this machine with their libraries, including the
machine's own libibverbs and rxe provider.
"""

import glob
import lzma
import os
import re
import shutil
import stat
import subprocess
import tempfile
import zlib

# Kernel name here -> the package that always depends on the newest kernel of
# that series (the second is in bookworm-security).
KERNELS = {"6.1": "linux-image-amd64", "6.12": "linux-image-6.12-amd64"}

MODULES = """
    crc32_generic crc32_pclmul crc32c_generic virtio_pci virtio_net
    virtio_console virtio_rng 9p 9pnet_virtio veth ifb sch_netem sch_ingress
    sch_prio cls_matchall cls_flower act_mirred configfs ib_uverbs ib_umad
    rdma_ucm rdma_rxe
""".split()

LIBRARY_FOLDER = "usr/lib/x86_64-linux-gnu"
OURS = "opt/rxe_user"  # the folder of our device in the guest
INIT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guest_init")


class Unavailable(Exception):
    """A requirement of the guest is not available here; one line."""


def _output(*argv):
    done = subprocess.run(argv, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def _kept_as(package):
    """The name of the folder for a kernel with these modules."""
    return f"{package}.{zlib.crc32(' '.join(MODULES).encode()):08x}"


def _kernel_package(meta):
    """The package that holds the newest kernel of `meta`, or None."""
    found = re.search(r"Depends: (linux-image-\d\S+)",
                      _output("apt-cache", "depends", meta))
    return found and found.group(1)


def _name(path):
    return re.sub(r"\.ko(\.xz)?$", "", os.path.basename(path)).replace("-", "_")


def _module(path):
    with open(path, "rb") as f:
        data = f.read()
    return lzma.decompress(data) if path.endswith(".xz") else data


def _depends(module):
    """The dependencies in a module's .modinfo section."""
    at = module.find(b"\0depends=")
    if at < 0:
        return []
    at += len(b"\0depends=")
    return [n for n in module[at:module.index(b"\0", at)].decode().split(",")
            if n]


def _pick_modules(tree, folder):
    """Copies MODULES and their dependencies, numbered in the order to load."""
    paths = {_name(p): p for p in
             glob.glob(f"{tree}/**/*.ko*", recursive=True)}
    built_in = set()
    for listing in glob.glob(f"{tree}/**/modules.builtin", recursive=True):
        with open(listing) as lines:
            built_in |= {_name(line.strip()) for line in lines}
    done = []

    def add(name):
        name = name.replace("-", "_")
        if name in built_in or name in done:
            return
        if name not in paths:
            raise Unavailable(f"the kernel package has no module {name}")
        data = _module(paths[name])
        for needed in _depends(data):
            add(needed)
        if name not in done:
            with open(f"{folder}/{len(done):02d}-{name}.ko", "wb") as f:
                f.write(data)
            done.append(name)

    for name in MODULES:
        add(name)


def _elf(image):
    """The ELF kernel inside a bzImage, which starts without decompression
    under emulation (QEMU boots it by PVH). None if it is packed differently."""
    for magic, unpack in (
            (b"\xfd7zXZ\0", lambda b: lzma.LZMADecompressor().decompress(b)),
            (b"\x1f\x8b\x08", lambda b: zlib.decompressobj(31).decompress(b))):
        at = image.find(magic)
        while at >= 0:
            try:
                kernel = unpack(image[at:])
                if kernel.startswith(b"\x7fELF"):
                    return kernel
            except (lzma.LZMAError, zlib.error):
                pass
            at = image.find(magic, at + 1)
    return None


def kernel(version, cache):
    """The folder with `kernel` and `modules/` of Debian's kernel `version`,
    kept in `cache`. Raises Unavailable."""
    if not shutil.which("apt-get"):
        raise Unavailable("needs Debian's packages (no apt-get here)")
    package = _kernel_package(KERNELS[version])
    if not package:  # the package lists may be old or missing
        subprocess.run(["apt-get", "update", "-qq"], capture_output=True)
        package = _kernel_package(KERNELS[version])
    if not package:
        kept = sorted(glob.glob(
            _kept_as(f"{cache}/linux-image-{version}.*")),
                      key=os.path.getmtime)
        if kept:
            return kept[-1]
        raise Unavailable(f"apt knows no package {KERNELS[version]}")
    folder = f"{cache}/{_kept_as(package)}"
    if os.path.exists(folder):
        return folder
    os.makedirs(cache, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as work:
        for attempt in (1, 2):
            done = subprocess.run(
                ["apt-get", "download", "-qq", package], cwd=work,
                capture_output=True, text=True)
            if done.returncode == 0:
                break
            if attempt == 1:  # a newer one may have replaced it
                subprocess.run(["apt-get", "update", "-qq"],
                               capture_output=True)
                package = _kernel_package(KERNELS[version]) or package
        else:
            said = done.stderr.strip().splitlines()
            raise Unavailable(f"cannot download {package}: "
                              f"{said[-1] if said else 'no reason given'}")
        deb, = glob.glob(f"{work}/*.deb")
        subprocess.run(["dpkg-deb", "-x", deb, f"{work}/tree"], check=True)
        image, = glob.glob(f"{work}/tree/boot/vmlinuz-*")
        os.makedirs(f"{work}/made/modules")
        _pick_modules(f"{work}/tree", f"{work}/made/modules")
        with open(image, "rb") as f:
            data = f.read()
        with open(f"{work}/made/kernel", "wb") as f:
            f.write(_elf(data) or data)
        folder = f"{cache}/{_kept_as(package)}"
        for old in glob.glob(f"{cache}/linux-image-{version}.*"):
            shutil.rmtree(old)
        os.rename(f"{work}/made", folder)
    return folder


class _Archive:
    """A cpio archive of the kind that the kernel unpacks ("newc")."""

    def __init__(self, path):
        self.out = open(path, "wb")
        self.names = set()

    def _entry(self, name, mode, data=b""):
        parent = os.path.dirname(name)
        if parent and parent not in self.names:
            self._entry(parent, stat.S_IFDIR | 0o755)
        self.names.add(name)
        encoded = name.encode() + b"\0"
        fields = (len(self.names), mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0,
                  len(encoded), 0)
        header = b"070701" + b"".join(b"%08x" % f for f in fields) + encoded
        self.out.write(header + bytes(-len(header) % 4))
        self.out.write(data + bytes(-len(data) % 4))

    def folder(self, name):
        self._entry(name, stat.S_IFDIR | 0o755)

    def file(self, name, data, mode=0o755):
        self._entry(name, stat.S_IFREG | mode, data)

    def copy(self, name, source):
        with open(source, "rb") as f:
            self.file(name, f.read())

    def link(self, name, target):
        self._entry(name, stat.S_IFLNK | 0o777, target.encode())

    def close(self):
        self._entry("TRAILER!!!", 0)
        self.out.close()


def _libraries(path):
    """Paths of the shared libraries that a program of this machine loads."""
    # Not our libraries: the guest must be an independent peer.
    environment = {k: v for k, v in os.environ.items()
                   if k != "LD_LIBRARY_PATH"}
    done = subprocess.run(["ldd", path], capture_output=True, text=True,
                          env=environment)
    return re.findall(r"(/\S+) \(0x", done.stdout)


def initramfs(path, kernel_folder, programs, prefix=None):
    """Writes the guest's file system to `path`. `programs` are names or paths
    of files on this machine. With `prefix`, our device as installed there is
    included in OURS."""
    archive = _Archive(path)
    for name in ("dev", "proc", "sys", "tmp", "run", "root", "host"):
        archive.folder(name)
    archive.copy("init", INIT)
    archive.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", 0o644)
    archive.file("etc/group", b"root:x:0:\n", 0o644)
    archive.file("etc/hosts", b"127.0.0.1 localhost\n", 0o644)
    for module in sorted(os.listdir(f"{kernel_folder}/modules")):
        archive.copy(f"lib/modules/{module}",
                     f"{kernel_folder}/modules/{module}")

    providers = glob.glob(f"/{LIBRARY_FOLDER}/libibverbs/librxe-rdmav*.so")
    if not providers:
        raise Unavailable("ibverbs-providers is not installed")
    libraries = set()
    for provider in providers:
        archive.copy(provider.lstrip("/"), provider)
        libraries |= set(_libraries(provider))
    archive.copy("etc/libibverbs.d/rxe.driver", "/etc/libibverbs.d/rxe.driver")
    # pthread_exit loads it when it is called.
    libraries.add("/lib/x86_64-linux-gnu/libgcc_s.so.1")
    for program in programs:
        source = shutil.which(program)
        if not source:
            raise Unavailable(f"{program} is not installed")
        archive.copy(f"usr/bin/{os.path.basename(program)}", source)
        libraries |= set(_libraries(source))
    for folder in ("bin", "lib", "libexec", "libexec/commands") if prefix else ():
        for source in glob.glob(f"{prefix}/{folder}/*"):
            if os.path.isfile(source):
                archive.copy(f"{OURS}/{folder}/{os.path.basename(source)}",
                             source)
                libraries |= set(_libraries(source))
    for library in sorted(libraries):
        archive.copy(library.lstrip("/"), library)

    busybox = shutil.which("busybox")
    if not busybox or _libraries(busybox):
        raise Unavailable("busybox-static is not installed")
    archive.copy("bin/busybox", busybox)
    # Busybox's own shell would prefer its own ip and tc to these programs.
    for applet in _output(busybox, "--list").split():
        if applet != "sh" and not archive.names & {f"bin/{applet}",
                                                   f"usr/bin/{applet}"}:
            archive.link(f"bin/{applet}", "/bin/busybox")
    archive.copy("bin/sh", "/bin/dash")
    for library in _libraries("/bin/dash"):
        if library.lstrip("/") not in archive.names:
            archive.copy(library.lstrip("/"), library)
    archive.close()
