#!/usr/bin/env python3
"""Prints the bill of materials of executables, as SPDX 2.3 or CycloneDX 1.5 JSON.

`cargo auditable` writes the dependencies of an executable into the executable (section .dep-v0). That list also has crates that only tests need.
The file LINKED lists the crates that are linked, with name and version in each line. Licences come from `cargo metadata` (stdin), checksums from
Cargo.lock. RUNTIME is a directory that the function `runtime` of scripts/common has created, with the crates of Rust's standard library and the
version of musl. musl and LLVM's libunwind are linked with it. The same executables give the same bytes: all times are SOURCE_DATE_EPOCH, and the
identifier of the document is a digest of its content.

usage: cargo metadata --locked --format-version 1 | packaging/sbom.py spdx|cyclonedx NAME VERSION LINKED RUNTIME EXECUTABLE...
       packaging/sbom.py crates EXECUTABLE...     the crates and their versions, a line for each
"""

import datetime
import hashlib
import json
import os
import struct
import subprocess
import sys
import tomllib
import urllib.parse
import uuid
import zlib


def section(path, wanted):
    """The content of a section of a 64-bit little-endian ELF file."""
    with open(path, "rb") as file:
        elf = file.read()
    if elf[:6] != b"\x7fELF\x02\x01":
        sys.exit(f"{path}: no ELF file of 64 bits")
    (start,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    # For each section: the offset of its name, and the offset and size of its content.
    headers = [struct.unpack_from("<I20xQQ", elf, start + size * i) for i in range(count)]
    names = headers[names][1]
    for name, offset, length in headers:
        begin = names + name
        if elf[begin : elf.index(b"\0", begin)] == wanted:
            return elf[offset : offset + length]
    sys.exit(f"{path}: the section {wanted.decode()} is missing: build it by cargo auditable")


def linked(path):
    """The crates that are linked into an executable: {(name, version): {(name, version) of its dependencies}}, and the executable's own crate."""
    packages = json.loads(zlib.decompress(section(path, b".dep-v0")))["packages"]
    ids = [(package["name"], package["version"]) for package in packages]
    found, root = {}, None
    for package, id in zip(packages, ids):
        # Build scripts and procedural macros run during the build and are not linked.
        if package.get("kind", "runtime") == "runtime":
            found[id] = {ids[i] for i in package.get("dependencies", []) if packages[i].get("kind", "runtime") == "runtime"}
        if package.get("root"):
            root = id
    return found, root


def crates(executables):
    """The crates of all executables together, as in `linked`."""
    found = {}
    for executable in executables:
        for id, needs in linked(executable)[0].items():
            found.setdefault(id, set()).update(needs)
    return dict(sorted(found.items()))


def only(found, path):
    """Removes packages that are not linked."""
    with open(path) as file:
        wanted = {tuple(line.split()) for line in file}
    if missing := wanted - found.keys():
        sys.exit(f"no executable names {sorted(missing)}")
    return {id: needs & wanted for id, needs in found.items() if id in wanted}


def rustc():
    """The versions of the compiler and of its LLVM."""
    told = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    told = dict(line.split(": ", 1) for line in told.splitlines() if ": " in line)
    return told["release"], told["LLVM version"]


def toolchain(runtime):
    """Parts of the compiler that are in no registry: {(name, version): (licence, description)}."""
    release, llvm = rustc()
    with open(f"{runtime}/musl") as file:
        musl = file.read().strip()
    return {
        ("std", release): ("MIT OR Apache-2.0", "Rust's standard library"),
        ("musl", musl): ("MIT", "The C library"),
        ("llvm-libunwind", llvm): ("Apache-2.0 WITH LLVM-exception", "Unwinds the stack after a panic"),
    }


def with_runtime(found, runtime):
    """Adds the standard library, which all executables contain, and its dependencies."""
    with open(f"{runtime}/linked") as file:
        crates = {tuple(line.split()) for line in file}
    std, *libraries = toolchain(runtime)
    others = crates | set(libraries)
    found = {id: needs | {std} for id, needs in found.items()}
    for id in others:
        found.setdefault(id, set())
    return dict(sorted((found | {std: others}).items()))


def described(found, runtime):
    """Licence, description and checksum of each crate. A crate without a checksum is from this repository or from the compiler."""
    metadata, lock = {}, {}
    with open(f"{runtime}/metadata.json") as file:
        documents = [json.load(file), json.load(sys.stdin)]
    for document in documents:
        metadata |= {(p["name"], p["version"]): p for p in document["packages"]}
    for path in [f"{runtime}/Cargo.lock", "Cargo.lock"]:
        with open(path, "rb") as file:
            lock |= {(p["name"], p["version"]): p.get("checksum") for p in tomllib.load(file)["package"]}
    for id, (licence, description) in toolchain(runtime).items():
        metadata[id], lock[id] = {"license": licence, "description": description}, None
    # Older crates write a slash instead of "OR".
    licence = lambda text: text.replace("/", " OR ") if "/" in text and " " not in text else text
    return {
        id: {
            "licence": licence(metadata[id]["license"] or "NOASSERTION"),
            "description": metadata[id]["description"],
            "checksum": lock[id],
        }
        for id in found
    }


def sums(executables):
    """For each executable: its name, SHA-1 (SPDX requires it), SHA-256, and its crate."""
    for path in sorted(executables, key=os.path.basename):
        with open(path, "rb") as file:
            content = file.read()
        yield os.path.basename(path), hashlib.sha1(content).hexdigest(), hashlib.sha256(content).hexdigest(), linked(path)[1]


def moment():
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    return datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def identifier(document):
    """A UUID that depends only on the content."""
    return uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(document, sort_keys=True))


def purl(id, checksum):
    kind = "cargo" if checksum else "generic"
    return f"pkg:{kind}/{id[0]}@{urllib.parse.quote(id[1])}"


def spdx(name, version, found, about, executables):
    ref = lambda id: "SPDXRef-Crate-" + "-".join(id).replace("_", "-").replace("+", "-")
    every = "".join(sorted(sha1 for _, sha1, _, _ in sums(executables)))
    product, packages, files, relations = "SPDXRef-Product", [], [], []
    packages.append({
        "SPDXID": product,
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": True,
        "packageVerificationCode": {"packageVerificationCodeValue": hashlib.sha1(every.encode()).hexdigest()},
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "Apache-2.0",
        "copyrightText": "NOASSERTION",
    })
    relate = lambda one, kind, other: relations.append(
        {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
    )
    relate("SPDXRef-DOCUMENT", "DESCRIBES", product)
    for id, needs in found.items():
        checksum = about[id]["checksum"]
        package = {
            "SPDXID": ref(id),
            "name": id[0],
            "versionInfo": id[1],
            "downloadLocation": f"https://crates.io/api/v1/crates/{id[0]}/{id[1]}/download" if checksum else "NOASSERTION",
            "filesAnalyzed": False,
            "licenseConcluded": "NOASSERTION",
            "licenseDeclared": about[id]["licence"],
            "copyrightText": "NOASSERTION",
            "externalRefs": [
                {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl(id, checksum)}
            ],
        }
        if checksum:
            package["checksums"] = [{"algorithm": "SHA256", "checksumValue": checksum}]
        if about[id]["description"]:
            package["description"] = about[id]["description"].strip()
        packages.append(package)
        for need in sorted(needs):
            relate(ref(id), "DEPENDS_ON", ref(need))
    for file, sha1, sha256, root in sums(executables):
        files.append({
            "SPDXID": f"SPDXRef-File-{file}",
            "fileName": f"./{file}",
            "fileTypes": ["BINARY"],
            "checksums": [
                {"algorithm": "SHA1", "checksumValue": sha1},
                {"algorithm": "SHA256", "checksumValue": sha256},
            ],
        })
        relate(product, "CONTAINS", f"SPDXRef-File-{file}")
        relate(f"SPDXRef-File-{file}", "GENERATED_FROM", ref(root))
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{name}-{version}",
        "creationInfo": {
            "created": moment(),
            "creators": ["Organization: The Ferrule developers", f"Tool: rustc-{rustc()[0]}"],
        },
        "packages": packages,
        "files": files,
        "relationships": relations,
    }
    return document | {"documentNamespace": f"urn:uuid:{identifier(document)}"}


def cyclonedx(name, version, found, about, executables):
    # The id must be unique in the document: a crate of this repository and one of the registry may have the same name.
    ref = lambda id: purl(id, about[id]["checksum"])
    components, dependencies = [], []
    for id, needs in found.items():
        checksum = about[id]["checksum"]
        component = {
            "type": "library",
            "bom-ref": ref(id),
            "name": id[0],
            "version": id[1],
            "purl": ref(id),
            "licenses": [{"expression": about[id]["licence"]}],
        }
        if checksum:
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        if about[id]["description"]:
            component["description"] = about[id]["description"].strip()
        components.append(component)
        dependencies.append({"ref": ref(id), "dependsOn": [ref(need) for need in sorted(needs)]})
    made = []
    for file, _, sha256, root in sums(executables):
        components.append({
            "type": "file",
            "bom-ref": f"file:{file}",
            "name": file,
            "hashes": [{"alg": "SHA-256", "content": sha256}],
        })
        dependencies.append({"ref": f"file:{file}", "dependsOn": [ref(root)]})
        made.append(f"file:{file}")
    dependencies.append({"ref": "ferrule", "dependsOn": made})
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": moment(),
            "tools": {"components": [{"type": "application", "name": "rustc", "version": rustc()[0]}]},
            "component": {
                "type": "application",
                "bom-ref": "ferrule",
                "name": name,
                "version": version,
                "licenses": [{"expression": "Apache-2.0"}],
            },
        },
        "components": components,
        "dependencies": dependencies,
    }
    return document | {"serialNumber": f"urn:uuid:{identifier(document)}"}


def main(form, *arguments):
    if form == "crates":
        for name, version in crates(arguments):
            print(name, version)
        return
    name, version, listed, runtime, *executables = arguments
    found = with_runtime(only(crates(executables), listed), runtime)
    document = {"spdx": spdx, "cyclonedx": cyclonedx}[form](name, version, found, described(found, runtime), executables)
    print(json.dumps(document, indent=1))


main(*sys.argv[1:])
