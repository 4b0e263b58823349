"""A folder whose contents can be restored."""

import os
import shutil
import tempfile

from failing_calls import contents


class Kept:
    """Stores names, the files they refer to (a process may have them open), and bytes."""

    def __init__(self, folder):
        self.folder, self.place = folder, tempfile.mkdtemp(dir=".")
        self.bytes = contents(folder)
        self.folders = {os.path.relpath(place, folder) for place, _, _ in os.walk(folder)}
        self.links = {name: os.path.join(self.place, str(number)) for number, name in enumerate(self.bytes)}
        for name, link in self.links.items():
            os.link(os.path.join(folder, name), link)

    def put_back(self):
        self.remove_new()
        for name in sorted(self.folders):
            os.makedirs(os.path.join(self.folder, name), exist_ok=True)
        for name, data in self.bytes.items():
            path = os.path.join(self.folder, name)
            if not os.path.exists(path):
                os.link(self.links[name], path)
            with open(path, "r+b") as file:
                if file.read() != data:
                    file.seek(0)
                    file.write(data)
                    file.truncate()
        shutil.rmtree(self.place)

    def remove_new(self):
        for place, folders, names in os.walk(self.folder, topdown=False):
            for name in names:
                path = os.path.join(place, name)
                known = os.path.relpath(path, self.folder)
                if known not in self.bytes or not os.path.samefile(path, self.links[known]):
                    os.remove(path)
            for name in folders:
                if os.path.relpath(os.path.join(place, name), self.folder) not in self.folders:
                    os.rmdir(os.path.join(place, name))
