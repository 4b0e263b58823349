"""A headless browser that renders pages."""

import os
import re
import shutil
import subprocess
import tempfile

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find():
    """The first of the known browsers in PATH, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


def browse(page, *options, fragment="", dark=False, size="1480,2000"):
    """Runs the browser on a file and returns its output. A message on the page's console is a failure."""
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [find(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--enable-logging=stderr", f"--user-data-dir={profile}", f"--window-size={size}", *scheme, *options,
             "file://" + os.path.abspath(page) + fragment],
            capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    printed = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not printed, printed
    return done.stdout


def dom(page, fragment=""):
    """The page as its script leaves it."""
    return browse(page, "--dump-dom", fragment=fragment)


def screenshot(page, png, **options):
    browse(page, f"--screenshot={os.path.abspath(png)}", **options)
    with open(png, "rb") as file:
        assert file.read(8) == b"\x89PNG\r\n\x1a\n", png
    return os.path.getsize(png)


def column(text, key):
    """(aria-sort, cells) of the column of a sortable table that has this data-key."""
    heads = {match[1]: (int(match[2]), match[0])
             for match in re.finditer(r'<th[^>]*data-key="([^"]*)" data-column="(\d+)"[^>]*>', text)}
    place, head = heads[key]
    order = re.search(r'aria-sort="(\w+)"', head)
    rows = re.findall(r"<tr data-name=.*?</tr>", text, re.S)
    cells = [re.findall(r"<td[^>]*>", row)[place] for row in rows]
    return order and order[1], [re.search(r'data-v="([^"]*)"', cell)[1] for cell in cells]
