"""Lists the files of a folder that has a folder for each class."""
import os
from dataclasses import dataclass, field

import numpy as np

from .common import DataError, did_you_mean, file_kind
from .splits import TEST, TRAIN, VALIDATION
from .writer import Labels, Part

_GROUPS = {"train": TRAIN, "training": TRAIN, "val": VALIDATION, "valid": VALIDATION, "validation": VALIDATION, "test": TEST,
           "testing": TEST}


@dataclass
class Listing:
    """Files by class and path, in the order of their bytes."""

    paths: list = field(default_factory=list)
    labels: list = field(default_factory=list)  # class numbers; empty without classes
    groups: list = field(default_factory=list)  # empty unless folders name the groups
    classes: list = field(default_factory=list)
    empty_classes: list = field(default_factory=list)  # folders without a file that has one of the endings
    others: int = 0  # files with other endings

    def part(self, samples):
        """Returns the Part of the samples of `paths`."""
        labels = Labels("classes", np.array(self.labels, np.int64), self.classes) if self.classes else Labels()
        return Part(samples, labels, np.array(self.groups, np.uint8) if self.groups else None)


def _entries(folder):
    """Returns the paths in a folder, without hidden files."""
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}") from None
    names = [name for name in names if not name.startswith(".") and name != "__MACOSX"]
    return [os.path.join(folder, name) for name in sorted(names, key=os.fsencode)]


def _group(path):
    return _GROUPS.get(os.path.basename(path).lower())


def _names_groups(folders):
    """Returns whether folders are groups (train, val, ..) and not classes, because a class may be named train.

    They are groups if all have names of groups, or if a folder with such a name contains folders.
    """
    named = [path for path in folders if _group(path) is not None]
    return bool(named) and (len(named) == len(folders) or any(os.path.isdir(path) for folder in named for path in _entries(folder)))


def list_folder(root, endings, known):
    """Lists the files below `root` with one of `endings`: ROOT/CLASS/../file, files in ROOT, or both below ROOT/train, ROOT/val, ..

    `known` are the classes if they are given.
    """
    if not os.path.isdir(root):
        kind = f"{file_kind(root)}, " if os.path.isfile(root) else ""
        raise DataError(f"{root} is {kind}not a folder: use an unpacked folder with a folder for each class")
    listing, loose, classed, empty = Listing(), [], [], set()

    def below(folder):
        """Yields the files below a folder. Does not follow links to folders, which may form a circle."""
        for path in _entries(folder):
            if not os.path.isdir(path):
                if os.path.splitext(path)[1].lower() in endings:
                    yield path
                else:
                    listing.others += 1
            elif not os.path.islink(path):
                yield from below(path)

    folders = [path for path in _entries(root) if os.path.isdir(path)]
    groups = {root: TRAIN}
    if _names_groups(folders):
        groups = {path: _group(path) for path in folders}
        if None in groups.values():
            other = next(os.path.basename(path) for path, group in groups.items() if group is None)
            raise DataError(f"{root} has folders of groups (train, test, ..) and the folder '{other}': move classes into train")
    for folder, group in groups.items():
        for path in _entries(folder):
            if os.path.isdir(path):
                name = os.fsencode(os.path.basename(path)).decode("utf-8", "replace")
                found = [(name, one, group) for one in below(path)]
                classed += found
                if not found:
                    empty.add(name)
            elif os.path.splitext(path)[1].lower() in endings:
                loose.append(("", path, group))
            else:
                listing.others += 1
    if classed and loose:
        raise DataError(f"{root} has {len(loose)} files next to folders of classes, for example {loose[0][1]}: move them into a class, "
                        "or away")
    names = {name for name, _, _ in classed}
    listing.empty_classes = sorted(empty - names)
    if classed:
        listing.classes = list(known) or sorted(names)
        numbers = {name: i for i, name in enumerate(listing.classes)}
        for name in sorted(names - numbers.keys()):
            raise DataError(f"{root} has the folder '{name}', which is not a given class{did_you_mean(name, listing.classes)}")
        listing.labels = [numbers[name] for name, _, _ in classed]
    files = classed or loose
    if not files:
        raise DataError(f"{root} has no file that ends in {', '.join(endings)}{f', but {listing.others} others' if listing.others else ''}"
                        + (f"; its folders {', '.join(listing.empty_classes[:8])} have none" if listing.empty_classes else ""))
    listing.paths = [path for _, path, _ in files]
    listing.groups = [group for _, _, group in files] if root not in groups else []
    return listing
