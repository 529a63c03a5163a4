"""The third-party components of our binaries: the bill of materials (SPDX 2.3)
and the packed licences.
"""

import hashlib
import json
import os
import shutil
import subprocess

# Shared libraries that not every system with glibc has, by their Debian
# package. They are installed in lib/private, where only our run paths look.
BUNDLED = {"libisal.so.2": "libisal2"}

LICENCES = "/usr/share/doc/{package}/copyright"
COMMON = "/usr/share/common-licenses"

# Name, Debian package that is linked, licence (SPDX), and whether the licence
# text is packed: those of Boost and of valgrind's headers require that for source
# code only.
COMPONENTS = (
    ("ISA-L", "libisal2", "BSD-3-Clause", True),
    ("libnl", "libnl-route-3-dev", "LGPL-2.1-only", True),
    ("liburing", "liburing-dev", "MIT", True),
    ("zlib", "zlib1g-dev", "Zlib", True),
    ("Abseil", "libabsl-dev", "Apache-2.0", True),
    ("Boost", "libboost-dev", "BSL-1.0", False),
    ("CLI11", "libcli11-dev", "BSD-3-Clause", True),
    ("JSON for Modern C++", "nlohmann-json3-dev", "MIT", True),
    ("Valgrind's headers", "valgrind", "bzip2-1.0.6", False),
    ("libstdc++", "libstdc++-12-dev", "GPL-3.0-or-later WITH "
     "GCC-exception-3.1", True),
)
# Licence texts that those texts refer to by a Debian path.
REFERRED_TO = ("LGPL-2.1", "Apache-2.0", "GPL-3")


def installed_version(package, arch):
    """The version of the package for `arch`, or else for this machine: for
    packages without an architecture, and for sysroots of the same release."""
    for name in (f"{package}:{arch}", package):
        done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", name],
                              capture_output=True, text=True)
        if done.returncode == 0 and done.stdout:
            return done.stdout
    raise FileNotFoundError(f"{package} is not installed")


def write_licences(folder):
    os.makedirs(folder)
    for _, package, _, packed in COMPONENTS:
        if packed:
            shutil.copyfile(LICENCES.format(package=package),
                            os.path.join(folder, package))
    for name in REFERRED_TO:
        shutil.copyfile(os.path.join(COMMON, name), os.path.join(folder, name))


def sha256(file):
    with open(file, "rb") as data:
        return hashlib.sha256(data.read()).hexdigest()


def relation(element, kind, other):
    return {"spdxElementId": element, "relationshipType": kind,
            "relatedSpdxElement": other}


def package(name, version, licence, identifier, **more):
    return {"name": name, "SPDXID": identifier, "versionInfo": version,
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
            "licenseConcluded": licence, "licenseDeclared": licence,
            "copyrightText": "NOASSERTION", **more}


def bill_of_materials(version, arch, archives):
    """SPDX 2.3 as JSON: the archives and their components. It has no time of
    creation, so the same input gives the same document."""
    digests = {os.path.basename(file): sha256(file) for file in archives}
    every = hashlib.sha256("".join(sorted(digests.values())).encode())
    parts, relations = [], []
    for number, (name, debian, licence, _) in enumerate(COMPONENTS):
        release = installed_version(debian, arch)
        linked = "DYNAMIC_LINK" if debian in BUNDLED.values() else "STATIC_LINK"
        identifier = f"SPDXRef-Component-{number}"
        parts.append(package(
            name, release, licence, identifier, externalRefs=[{
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": f"pkg:deb/debian/{debian}@{release}"
                                    f"?arch={arch}"}]))
        relations.append(relation("SPDXRef-Project", linked, identifier))
    project = package("rxe_user", version, "BSD-2-Clause", "SPDXRef-Project")
    relations.append(relation("SPDXRef-DOCUMENT", "DESCRIBES",
                              "SPDXRef-Project"))
    for number, file in enumerate(sorted(digests)):
        identifier = f"SPDXRef-Archive-{number}"
        parts.append(package(
            file, version, "BSD-2-Clause", identifier, packageFileName=file,
            checksums=[{"algorithm": "SHA256", "checksumValue": digests[file]}]))
        relations.append(relation(identifier, "CONTAINS", "SPDXRef-Project"))
    return json.dumps({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT", "name": f"rxe_user-{version}-{arch}",
        "documentNamespace": f"urn:rxe_user:{version}:{arch}:"
                             f"{every.hexdigest()}",
        "creationInfo": {"created": "1970-01-01T00:00:00Z",
                         "creators": ["Tool: tools/package"]},
        "packages": [project, *parts], "relationships": relations,
    }, indent=1) + "\n"
