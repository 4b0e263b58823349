"""Lists the files of a folder that has a folder for each class."""
import os
from dataclasses import dataclass, field

from .common import DataError, did_you_mean, file_kind
from .splits import TEST, TRAIN, VALIDATION

_GROUPS = {"train": TRAIN, "training": TRAIN, "val": VALIDATION, "valid": VALIDATION, "validation": VALIDATION, "test": TEST,
           "testing": TEST}
_DEEPEST = 32  # links may lead in a circle


@dataclass
class Listing:
    """Files by class and path, in the order of their bytes."""

    paths: list = field(default_factory=list)
    labels: list = field(default_factory=list)  # class numbers; empty without classes
    groups: list = field(default_factory=list)  # empty unless folders name the groups
    classes: list = field(default_factory=list)
    empty_classes: list = field(default_factory=list)  # folders without such a file
    others: int = 0  # files with other endings


def _entries(folder):
    """The paths in a folder, without hidden files."""
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}") from None
    names = [name for name in names if not name.startswith(".") and name != "__MACOSX"]
    return [os.path.join(folder, name) for name in sorted(names, key=os.fsencode)]


def _group(path):
    return _GROUPS.get(os.path.basename(path).lower())


def _names_groups(entries):
    """Whether folders name the groups: all are named so, or one that is has folders in it. A class may be called train."""
    folders = [path for path in entries if os.path.isdir(path)]
    named = [path for path in folders if _group(path) is not None]
    return bool(named) and (len(named) == len(folders) or any(os.path.isdir(path) for folder in named for path in _entries(folder)))


def list_folder(root, endings, known):
    """The files below `root` with one of `endings`: ROOT/CLASS/../file, files in ROOT, or both below ROOT/train, ROOT/val, ..

    `known` are the classes where they are given.
    """
    if not os.path.isdir(root):
        kind = file_kind(root)
        raise DataError(f"{root} is {f'{kind}, no folder' if kind else 'no folder'}: give a folder with a folder for each class"
                        f"{', as it is when unpacked' if 'archive' in kind else ''}")
    listing, loose, classed, empty = Listing(), [], [], set()

    def takes(path):
        found = os.path.splitext(path)[1].lower() in endings
        listing.others += not found
        return found

    def below(folder, depth=0):
        for path in _entries(folder):
            if not os.path.isdir(path):
                if takes(path):
                    yield path
            elif depth < _DEEPEST and not os.path.islink(path):
                yield from below(path, depth + 1)

    def take_classes(folder, group):
        for path in _entries(folder):
            if os.path.isdir(path):
                name = os.fsencode(os.path.basename(path)).decode("utf-8", "replace")
                found = [(name, one, group) for one in below(path)]
                classed.extend(found)
                if not found:
                    empty.add(name)
            elif takes(path):
                loose.append(("", path, group))

    entries = _entries(root)
    split = _names_groups(entries)
    if split:
        for path in entries:
            if os.path.isdir(path):
                if _group(path) is None:
                    raise DataError(f"{root} has folders of groups, such as train and test, beside '{os.path.basename(path)}': move "
                                    "classes into train")
                take_classes(path, _group(path))
    else:
        take_classes(root, TRAIN)
    if classed and loose:
        raise DataError(f"{root} has {len(loose)} files beside folders of classes, such as {loose[0][1]}: move them into one, or away")
    names = {name for name, _, _ in classed}
    listing.empty_classes = sorted(empty - names)
    if classed:
        listing.classes = list(known) or sorted(names)
        numbers = {name: i for i, name in enumerate(listing.classes)}
        for name, _, _ in classed:
            if name not in numbers:
                raise DataError(f"{root} has the folder '{name}', which is none of the classes given"
                                f"{did_you_mean(name, listing.classes)}")
        listing.labels = [numbers[name] for name, _, _ in classed]
    files = classed or loose
    if not files:
        raise DataError(f"{root} has no file that ends in {', '.join(endings)}"
                        f"{f', but {listing.others} others' if listing.others else ''}"
                        + (f"; its folders {', '.join(listing.empty_classes[:8])} have none" if listing.empty_classes else ""))
    listing.paths = [path for _, path, _ in files]
    listing.groups = [group for _, _, group in files] if split else []
    return listing
