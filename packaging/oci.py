#!/usr/bin/env python3
"""Writes a container image as a tar archive in the OCI layout: FROM scratch, with one layer. The same files give the same bytes.

The layer has the files of a directory (ferrule, its hard links, cnitool, ferrule-install) in /cni. The entry point is ferrule-install, which
installs the plugins in /host/opt/cni/bin, where the host's directory is mounted. Several directories make one image for several architectures.

usage: packaging/oci.py IMAGE.tar VERSION ARCH=DIRECTORY...     with SOURCE_DATE_EPOCH set
"""

import datetime
import gzip
import hashlib
import io
import json
import os
import sys
import tarfile

EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
HOST = "host/opt/cni/bin"


def entry(name, kind=tarfile.REGTYPE, mode=0o644, size=0):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.size, info.mtime = kind, mode, size, EPOCH
    return info


def add_dirs(tar, path):
    parts = path.split("/")
    for depth in range(len(parts)):
        tar.addfile(entry("/".join(parts[: depth + 1]) + "/", tarfile.DIRTYPE, 0o755))


def layer(directory):
    """The files of a directory. Hard links to one file are stored once."""
    content, seen = io.BytesIO(), {}
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        add_dirs(tar, "cni")
        add_dirs(tar, HOST)
        for name in sorted(os.listdir(directory)):
            path = os.path.join(directory, name)
            status = os.stat(path)
            if status.st_ino in seen:
                link = entry(f"cni/{name}", tarfile.LNKTYPE, 0o755)
                link.linkname = seen[status.st_ino]
                tar.addfile(link)
                continue
            seen[status.st_ino] = f"cni/{name}"
            with open(path, "rb") as file:
                mode = 0o755 if status.st_mode & 0o100 else 0o644
                tar.addfile(entry(f"cni/{name}", mode=mode, size=status.st_size), file)
    return content.getvalue()


class Image:
    def __init__(self, version):
        self.version = version
        self.blobs = {}

    def blob(self, content, kind, **more):
        """Adds content to the image, and returns its descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)} | more

    def json(self, document, kind, **more):
        return self.blob(json.dumps(document).encode(), kind, **more)

    def manifest(self, arch, directory):
        tar = layer(directory)
        created = datetime.datetime.fromtimestamp(EPOCH, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        platform = {"architecture": arch, "os": "linux"}
        config = platform | {
            "created": created,
            "config": {
                "Entrypoint": ["/cni/ferrule-install"],
                "Cmd": ["--dir", f"/{HOST}"],
                "Labels": {
                    "org.opencontainers.image.title": "ferrule",
                    "org.opencontainers.image.version": self.version,
                    "org.opencontainers.image.licenses": "Apache-2.0",
                },
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(tar).hexdigest()}"]},
            "history": [{"created": created, "created_by": "packaging/oci.py"}],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": self.json(config, "config.v1+json"),
            "layers": [self.blob(gzip.compress(tar, 9, mtime=0), "layer.v1.tar+gzip")],
        }
        return self.json(manifest, "manifest.v1+json", platform=platform)

    def write(self, path, manifests):
        index = lambda descriptors: {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": descriptors,
        }
        top = manifests[0] if len(manifests) == 1 else self.json(index(manifests), "index.v1+json")
        # containerd reads the first annotation, Podman the second.
        name = f"localhost/ferrule:v{self.version}"
        top["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
        files = {"index.json": json.dumps(index([top])).encode(), "oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}
        files |= {f"blobs/sha256/{digest}": content for digest, content in self.blobs.items()}
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
            add_dirs(tar, "blobs/sha256")
            for name in sorted(files):
                tar.addfile(entry(name, size=len(files[name])), io.BytesIO(files[name]))


def main(path, version, *directories):
    image = Image(version)
    image.write(path, [image.manifest(*pair.split("=", 1)) for pair in directories])


main(*sys.argv[1:])
