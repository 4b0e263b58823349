"""Makes libraries without code that replace NVIDIA's libraries. torch is linked to them and does not call them on a CPU. Requires gcc,
nm and readelf."""

import collections
import pathlib
import re
import subprocess


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def wanted(libraries):
    """Returns ({library: versions}, {version: names}) of the linked symbols. Names without a version are under ''."""
    versions, names = collections.defaultdict(set), collections.defaultdict(set)
    for library in libraries:
        file = None
        for line in output("readelf", "-VW", library).splitlines():
            file = match.group(1) if (match := re.search(r"File: (\S+)", line)) else file
            if file and (match := re.search(r"Name: (\S+)", line)):
                versions[file].add(match.group(1))
        for line in output("readelf", "-dW", library).splitlines():
            if match := re.search(r"NEEDED.*\[(\S+)\]", line):
                versions[match.group(1)]
        for line in output("nm", "-D", "--undefined-only", library).splitlines():
            if match := re.match(r"\s*[Uw] (\w+)(?:@(\S+))?$", line):
                names[match.group(2) or ""].add(match.group(1))
    return versions, names


#: Folders that torch searches, and prefixes of the symbols of libraries without symbol versions.
FOLDERS = {"libcudnn": "cudnn", "libcusparseLt": "cusparselt", "libnccl": "nccl", "libnvshmem_host": "nvshmem"}
PREFIXES = {"libnccl": "nccl", "libcusparseLt": "cusparseLt", "libcufile": "cuFile"}


def make(path, versions, names):
    path.parent.mkdir(parents=True, exist_ok=True)
    script = path.with_suffix(".map")
    script.write_text("".join(f"{version} {{ global: *; }};\n" for version in versions))
    code = "".join(f"char {name}[64];" for name in sorted(names)) or "char stand_in;"
    subprocess.run(["gcc", "-shared", f"-Wl,-soname,{path.name}", *([f"-Wl,--version-script={script}"] if versions else []),
                    "-fno-builtin", "-x", "c", "-", "-o", path], input=code.encode(), check=True)
    script.unlink()


def make_all(site_packages):
    """Makes the libraries for the torch of a folder of packages."""
    site = pathlib.Path(site_packages)
    versions, names = wanted(sorted((site / "torch/lib").glob("lib*torch*.so")) + sorted((site / "torch/lib").glob("libc10*.so")))
    for library, own in sorted(versions.items()):
        short = library.split(".")[0]
        if not re.match(r"lib(cu(?!pti|dart)|nv|nccl)", short):
            continue
        path = site / "nvidia" / FOLDERS.get(short, "cu13") / "lib" / library
        found = set().union(*(names[version] for version in own))
        prefix = PREFIXES.get(short)
        make(path, sorted(own), found | {name for name in names[""] if prefix and name.startswith(prefix)})
