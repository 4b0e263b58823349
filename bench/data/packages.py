"""Debian packages: found where they are installed, or downloaded and unpacked without installing them."""

import glob
import os
import shutil
import subprocess


def installed(package):
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Status}", package], capture_output=True, text=True)
    return done.returncode == 0 and done.stdout.endswith(" installed")


def unpacked(package, folder):
    """Returns the folder with the files of the package: "/" if it is installed, else the folder where it was unpacked."""
    if shutil.which("dpkg-query") and installed(package):
        return "/"
    target = os.path.join(folder, package)
    if os.path.isdir(target):
        return target
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise OSError(f"the package {package} is not here, and there is no apt-get to download it")
    os.makedirs(folder, exist_ok=True)
    done = subprocess.run(["apt-get", "download", package], cwd=folder, capture_output=True, text=True)
    found = glob.glob(os.path.join(folder, package + "_*.deb"))
    if done.returncode != 0 or not found:
        raise OSError(f"{package} cannot be downloaded (apt-get update helps where lists are old): {done.stderr.strip()[-300:]}")
    subprocess.run(["dpkg-deb", "-x", found[0], target + ".part"], check=True)
    os.rename(target + ".part", target)
    os.remove(found[0])
    return target
