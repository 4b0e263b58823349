"""States of a disk after a power failure at any moment of a recorded run (tests/crash/record_calls.cpp).

The bytes written to a file before its last sync are present. Of later bytes there may be: none; a prefix; only the length (zeros);
only the last piece; all. Names (created, renamed, linked, removed) change in their order, at least up to the
last sync of their folder, then partly or completely. A renamed file may therefore be present without its bytes."""

import os

DATA = ("lost", "torn", "zeros", "last", "all")
NAMES = ("lost", "half", "all")


class Node:
    """The bytes of a file: the synced ones and the later changes."""

    def __init__(self, content=b""):
        self.safe, self.since = content, []

    def sync(self):
        self.safe, self.since = apply(self.safe, self.since), []

    def content(self, how):
        if how == "lost" or not self.since:
            return self.safe
        if how == "all":
            return apply(self.safe, self.since)
        if how == "zeros":
            return apply(self.safe, [(at, bytes(len(data)) if data is not None else None) for at, data in self.since])
        if how == "last":
            return apply(self.safe, self.since[-1:])
        *first, (at, data) = self.since[:len(self.since) // 2 + 1]
        return apply(self.safe, first + ([(at, data[:len(data) // 2])] if data else []))


def apply(content, changes):
    content = bytearray(content)
    for at, data in changes:
        if data is None:  # a new length
            content = content[:at] + bytes(max(0, at - len(content)))
        else:
            content += bytes(max(0, at - len(content)))
            content[at:at + len(data)] = data
    return bytes(content)


def read_calls(path):
    """Yields the calls of a record: (name, arguments, bytes)."""
    with open(path, "rb") as file:
        while line := file.readline():
            name, _, words = line.decode()[:-1].partition(" ")
            size = int(words.rsplit(" ", 1)[1]) if name == "write" else 0
            yield name, words, file.read(size)


class Disk:
    def __init__(self, before, folder):
        """`before`: path to bytes of all files in the folder at the beginning, which are safe."""
        self.nodes = {path: Node(content) for path, content in before.items()}  # by inode, or path of the beginning
        self.known = {str(os.stat(os.path.join(folder, path)).st_ino): path for path in before}
        self.names = {path: path for path in before}
        self.folders = {""} | {folder for path in before for folder in parents(path)}
        self.pending = []  # changes of names that no sync made safe
        self.whole = {path: {content} for path, content in before.items()}  # complete contents that a name had

    def node(self, inode):
        return self.nodes.setdefault(self.known.get(inode, inode), Node())

    def take(self, name, words, data):
        if name == "write":
            inode, at, _ = words.split()
            self.node(inode).since.append((int(at), data))
        elif name == "size":
            inode, size = words.split()
            self.node(inode).since.append((int(size), None))
        elif name == "sync":
            self.node(words).sync()
        elif name == "folder":
            self.sync_folder("" if words == "." else words.rstrip("/"))
        else:
            self.change_name(name, words)

    def change_name(self, name, words):
        if name == "create":
            inode, path = words.split(" ", 1)
            self.known.pop(inode, None)  # the number of a file that is gone
            key = f"{inode}:{len(self.nodes)}"
            self.known[inode] = key
            self.nodes[key] = Node()
            change = (name, path, key)
        else:
            change = (name, *words.split("\t"))
        self.pending.append(change)
        names, _ = self.tree("all")
        if name in ("rename", "link"):
            self.whole.setdefault(change[2], set()).add(self.nodes[names[change[2]]].content("all"))

    def sync_folder(self, folder):
        """Names of other folders that were changed before may become safe too: they stay in doubt."""
        kept = []
        for change in self.pending:
            if os.path.dirname(change[2] if change[0] in ("rename", "link") else change[1].rstrip("/")) == folder:
                change_tree(self.names, self.folders, change)
            else:
                kept.append(change)
        self.pending = kept

    def tree(self, how):
        names, folders = dict(self.names), set(self.folders)
        count = {"lost": 0, "half": (len(self.pending) + 1) // 2, "all": len(self.pending)}[how]
        for change in self.pending[:count]:
            change_tree(names, folders, change)
        return names, folders

    def states(self):
        """Each as path to bytes."""
        for how in NAMES:
            names, folders = self.tree(how)
            for data in DATA:
                yield (how, data), {path: self.nodes[key].content(data) for path, key in names.items()
                                    if os.path.dirname(path) in folders}


def parents(path):
    while path := os.path.dirname(path):
        yield path


def change_tree(names, folders, change):
    name, path = change[0], change[1].rstrip("/")
    if name == "create":
        names[path] = change[2]
    elif name == "make":
        folders.add(path)
    elif name == "remove":
        names.pop(path, None)
        folders.discard(path)
    elif path in names:
        names[change[2]] = names[path]
        if name == "rename":
            del names[path]
