"""Data sets of fakequant (docs/formats.md), written by h5py."""

import os

import h5py


def write(path, groups, classes=None, **attributes):
    """Writes a data set. `groups`: name -> (x, y); `attributes` are set on each x."""
    with h5py.File(path + ".part", "w") as file:
        for name, (x, y) in groups.items():
            stored = file.create_dataset(name + "/x", data=x, compression="gzip", shuffle=True)
            stored.attrs.update(attributes)
            file.create_dataset(name + "/y", data=y, compression="gzip")
        if classes is not None:
            file.attrs["classes"] = list(map(str, classes))
    os.replace(path + ".part", path)
    shapes = ", ".join(f"{name} {list(x.shape)} {x.dtype}" for name, (x, _) in groups.items())
    print(f"{path}: {shapes}" + ("" if classes is None else f", {len(classes)} classes"))
