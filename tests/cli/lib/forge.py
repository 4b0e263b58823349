"""Files with false claims: data sets, and states with valid checksums."""

import json
import struct

import h5py
import numpy as np

TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def crc32c(contents):
    crc = 0xFFFFFFFF
    for byte in contents:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def replaced(name, old, new, count=1):
    """Writes `new` over each of the `count` places of `old` in a file."""
    assert len(old) == len(new)
    with open(name, "rb") as file:
        contents = file.read()
    assert contents.count(old) == count, f"{name}: {contents.count(old)} times {old}"
    with open(name, "wb") as file:
        file.write(contents.replace(old, new))


def low_level(parent, name, values, layout, shape=None):
    """A dataset with a layout that h5py's own functions do not choose."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_layout(layout)
    space = h5py.h5s.create_simple(shape or values.shape)
    made = h5py.h5d.create(parent.id, name.encode(), h5py.h5t.py_create(values.dtype), space, properties)
    made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(values))
    return h5py.Dataset(made)


def put_part(file, name, values, index, dtype="f32", **more):
    """A dataset as fakequant's files have them."""
    part = file.create_dataset(name, data=values) if not isinstance(values, h5py.Dataset) else values
    mark(part, np.asarray(part[()]).tobytes(), index, dtype, **more)
    return part


def mark(part, contents, index, dtype="f32", **more):
    part.attrs["crc32c"] = np.int64(crc32c(contents))
    part.attrs["index"] = np.int64(index)
    for key, value in dict(more, dtype=dtype).items():
        part.attrs.create(key, np.bytes_(value))


def state(name, build, attributes=b"{}", kind=b"checkpoint"):
    """A state that `build` puts parts into, with valid checksums. Its listing has no types, as in files of older versions,
    so that the tree is read."""
    with h5py.File(name, "w", userblock_size=512, libver=("earliest", "v110")) as file:
        text = file.create_dataset("attributes", data=np.bytes_(attributes))
        mark(text, attributes, 0)
        build(file)
    entries, seen = [], set()
    with h5py.File(name) as file:
        waiting = [("", file["/"])]  # one step at a time: h5py looks names up from the root
        while waiting:
            prefix, group = waiting.pop()
            for key in group if group.id not in seen else ():
                if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                    continue
                part, path = group[key], f"{prefix}{key}"
                if isinstance(part, h5py.Group):
                    waiting.append((path + "/", part))
                elif isinstance(part, h5py.Dataset):
                    contents = attributes if path == "attributes" else np.asarray(part[()]).tobytes()
                    entries.append({"name": path, "offset": part.id.get_offset() or 512, "bytes": len(contents),
                                    "crc32c": crc32c(contents)})
            seen.add(group.id)
    entries.sort(key=lambda entry: entry["name"])
    seal(name, kind, entries)
    return name


def listed(name, entries, data=b"", kind=b"checkpoint"):
    """A state without a tree: the header, `data`, and the listing."""
    with open(name, "wb") as file:
        file.write(bytes(512) + data)
    seal(name, kind, entries)
    return name


def make_entry(name, data, at, dtype, shape, **more):
    """An entry of a listing, of bytes that begin at `at` of the data."""
    return dict({"name": name, "offset": 512 + at, "bytes": len(data), "crc32c": crc32c(data), "dtype": dtype, "shape": shape}, **more)


def seal(name, kind=b"checkpoint", entries=None):
    """Adds a header before a file and a listing after it; without `entries` it keeps its listing."""
    with open(name, "rb") as file:
        contents = file.read()
    body, listing = contents[512:], b""
    if entries is None:
        size = struct.unpack("<q", contents[24:32])[0]
        body, listing = body[:len(body) - size], body[len(body) - size:]
    else:
        listing = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    body += listing
    header = bytearray(512)
    header[:8] = b"\x89FQS\r\n\x1a\n"
    struct.pack_into("<IIqqI", header, 8, 1, crc32c(body), len(body), len(listing), crc32c(listing))
    header[36:36 + len(kind)] = kind
    struct.pack_into("<I", header, 508, crc32c(header[:508]))
    with open(name, "wb") as file:
        file.write(bytes(header) + body)


class StateFile:
    """A file in memory: `attributes` may be changed, and elements of f32 datasets."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = bytearray(file.read())
        length, listing = struct.unpack("<QQ", self.bytes[16:32])
        self.entries = json.loads(self.bytes[512 + length - listing:512 + length])
        del self.bytes[512 + length - listing:]
        self.places = {entry["name"]: (entry["offset"], entry["bytes"]) for entry in self.entries}
        self.attributes = json.loads(self.get("attributes"))

    def get(self, name):
        offset, size = self.places[name]
        return bytes(self.bytes[offset:offset + size])

    def put(self, name, contents):
        offset, size = self.places[name]
        assert len(contents) == size, f"{name}: {len(contents)} bytes, not {size}"
        self.bytes[offset:offset + size] = contents
        next(entry for entry in self.entries if entry["name"] == name)["crc32c"] = crc32c(contents)

    def put_float(self, name, index, value):
        contents = bytearray(self.get(name))
        contents[4 * index:4 * index + 4] = struct.pack("<f", value)
        self.put(name, bytes(contents))

    def save(self, path):
        size = self.places["attributes"][1]
        self.put("attributes", json.dumps(self.attributes, separators=(",", ":")).encode().ljust(size))
        kind = bytes(self.bytes[36:68]).rstrip(b"\0")
        with open(path, "wb") as file:
            file.write(self.bytes)
        seal(path, kind, self.entries)
        return path
