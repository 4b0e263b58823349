"""Files that say what is not so: data sets, and states whose checksums hold all the same."""

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
    """A state that `build` puts parts into, with whole checksums."""
    with h5py.File(name, "w", userblock_size=512) as file:
        text = file.create_dataset("attributes", data=np.bytes_(attributes))
        mark(text, attributes, 0)
        build(file)
    seal(name, kind)
    return name


def seal(name, kind=b"checkpoint"):
    with open(name, "rb") as file:
        body = file.read()[512:]
    header = bytearray(512)
    header[:8] = b"\x89FQS\r\n\x1a\n"
    struct.pack_into("<IIqqI", header, 8, 1, crc32c(body), len(body), 0, crc32c(b""))
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
        entries = json.loads(self.bytes[512 + length - listing:512 + length])
        self.places = {entry["name"]: (entry["offset"], entry["bytes"]) for entry in entries}
        self.attributes = json.loads(self.get("attributes"))

    def get(self, name):
        offset, size = self.places[name]
        return bytes(self.bytes[offset:offset + size])

    def put(self, name, contents):
        offset, size = self.places[name]
        assert len(contents) == size, f"{name}: {len(contents)} bytes, not {size}"
        old, new = (struct.pack("<I", crc32c(text)) for text in (self.get(name), contents))
        self.bytes[offset:offset + size] = contents
        if old == new:
            return
        at = self.bytes.index(old, 512)  # the dataset's own attribute
        self.bytes[at:at + 4] = new

    def put_float(self, name, index, value):
        contents = bytearray(self.get(name))
        contents[4 * index:4 * index + 4] = struct.pack("<f", value)
        self.put(name, bytes(contents))

    def save(self, path):
        size = self.places["attributes"][1]
        self.put("attributes", json.dumps(self.attributes, separators=(",", ":")).encode().ljust(size))
        self.bytes[12:16] = struct.pack("<I", crc32c(self.bytes[512:]))
        self.bytes[508:512] = struct.pack("<I", crc32c(self.bytes[:508]))
        with open(path, "wb") as file:
            file.write(self.bytes)
        return path
