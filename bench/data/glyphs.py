"""Images of letters and digits: fonts drawn by Pillow, rotated, on an uneven background and with noise."""

import glob
import os
import zlib

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from . import data_file, packages

CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghnqrt"  # two for letters whose small form differs
PACKAGES = ["fonts-dejavu-core", "fonts-dejavu-extra", "fonts-liberation", "fonts-freefont-ttf", "fonts-lato", "fonts-hack",
            "fonts-open-sans", "fonts-urw-base35", "fonts-cantarell", "fonts-crosextra-carlito", "fonts-crosextra-caladea",
            "fonts-linuxlibertine", "fonts-inconsolata", "fonts-comfortaa", "fonts-dosis", "fonts-junicode", "fonts-quicksand",
            "fonts-sil-gentium", "fonts-ebgaramond", "fonts-firacode", "fonts-croscore", "fonts-courier-prime", "fonts-humor-sans",
            "fonts-roboto-unhinted", "fonts-vollkorn", "fonts-league-spartan", "fonts-play", "fonts-rufscript", "fonts-femkeklaver",
            "fonts-ecolier-court", "fonts-breip", "fonts-dustin", "fonts-isabella", "fonts-larabie-straight"]
SYMBOLS = ("symbol", "d050000", "dingbat", "math", "emoji")  # glyphs that do not show the letter of their code
SIZE, PEN, CANVAS = 28, 44, 96
MOST_OF_A_FAMILY = 8


def draws_letters(path):
    """Returns whether the font has distinct glyphs of letters. Fonts of symbols and of other scripts do not."""
    if any(word in os.path.basename(path).lower() for word in SYMBOLS):
        return False
    try:
        font = ImageFont.truetype(path, 24)
        pictures = {bytes(font.getmask(c)) for c in "AQgR8e"}
        return len(pictures) == 6 and all(font.getmask(c).getbbox() for c in CHARACTERS)
    except (OSError, ValueError):
        return False


def family(path):
    return os.path.splitext(os.path.basename(path))[0].split("-")[0].split("_")[0].lower()[:10]


def find_families(folders):
    found = {}
    for folder in folders:
        for path in sorted(glob.glob(os.path.join(folder, "**", "*.[to]tf"), recursive=True)):
            if draws_letters(path):
                found.setdefault(family(path), []).append(path)
    return found


def font_folders(folder):
    folders, missing = [], []
    for package in PACKAGES:
        try:
            root = packages.unpacked(package, folder)
        except OSError as error:
            missing.append(str(error))
            continue
        share = os.path.join(root, "usr", "share", "fonts")
        folders += [share] if share not in folders else []
    if not folders:
        raise OSError("there are no fonts: " + missing[0])
    return folders


def ground(draw):
    """A surface that is darker on one side, [28, 28]."""
    x, y = np.meshgrid(np.linspace(0, 1, SIZE), np.linspace(0, 1, SIZE))
    angle = draw.uniform(0, 2 * np.pi)
    slope = np.cos(angle) * x + np.sin(angle) * y
    return draw.uniform(0, 0.25) + draw.uniform(0, 0.4) * (slope - slope.min()) / np.ptp(slope)


def picture(font, character, draw):
    """u8 [28, 28]."""
    sheet = Image.new("L", (CANVAS, CANVAS))
    left, top, right, bottom = font.getbbox(character)
    ImageDraw.Draw(sheet).text(((CANVAS - left - right) / 2, (CANVAS - top - bottom) / 2), character, 255, font=font)
    angle, zoom, slant = np.radians(draw.normal(0, 8)), draw.uniform(1.7, 2.3), draw.normal(0, 0.12)
    turn = zoom * np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]) @ np.array([[1, slant], [0, 1]])
    start = CANVAS / 2 - turn @ (SIZE / 2 + draw.normal(0, 1.2, 2))
    small = sheet.transform((SIZE, SIZE), Image.AFFINE, (*turn[0], start[0], *turn[1], start[1]), Image.BICUBIC)
    values = ground(draw) + np.asarray(small) / 255 * draw.uniform(0.35, 0.9)
    values = values + draw.normal(0, draw.uniform(0.02, 0.12), values.shape)
    if draw.random() < 0.3:
        values = 1 - values
    return np.uint8(np.clip(values, 0, 1) * 255)


def draw_images(families, repeats, draw):
    x, y = [], []
    for paths in families:
        for path in sorted(draw.choice(paths, min(len(paths), MOST_OF_A_FAMILY), replace=False)):
            font = ImageFont.truetype(str(path), PEN)
            for label, character in enumerate(CHARACTERS):
                x += [picture(font, character, draw) for _ in range(repeats)]
                y += [label] * repeats
    order = draw.permutation(len(y))
    return np.stack(x)[order][:, None], np.array(y, np.int64)[order]


def make(output, given):
    families = find_families(given.fonts or font_folders(given.packages))
    if len(families) < 2:
        raise ValueError(f"{len(families)} families of fonts with Latin letters: two or more are needed, some for the test")
    names = sorted(families, key=lambda name: zlib.crc32(name.encode()))
    held_out = names[:max(1, len(names) // 5)]
    draw = np.random.default_rng(given.seed)
    groups = {"train": draw_images([families[n] for n in sorted(families) if n not in held_out], 2, draw),
              "test": draw_images([families[n] for n in sorted(held_out)], 1, draw)}
    print(f"{len(families)} families of fonts, for the test {', '.join(sorted(held_out))}")
    data_file.write(output, groups, CHARACTERS, scale=np.float32(1 / 255))
