"""Data sets of images, of every format that Pillow reads. Images are decoded by several threads, a few at a time."""
import contextlib
import io
import os
import re
import struct
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from PIL import Image, ImageOps

from .common import DataError
from .folders import list_folder
from .writer import Samples

ENDINGS = (".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".jp2", ".tga",
           ".avif", ".heic", ".jxl")
_AHEAD = 64  # images that are decoded at once
_WIDEST = 1 << 15
_BEGINNING = 1 << 18  # bytes that hold most headers
_MOST_PIXELS = 1 << 27
_MOST_BYTES = 1 << 28
_BAD_EXIF = (KeyError, TypeError, ValueError, OSError, SyntaxError, struct.error)
_GREY = ("1", "L", "LA", "La", "I;16", "I;16B", "I;16L")


class BadImage(Exception):
    """An image cannot be read. The text continues its path: "is truncated"."""


def _read(path, most):
    """Returns at most `most` bytes of a file."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size  # read(n) allocates n bytes at once
            return file.read(min(most, max(size, 4096)))
    except OSError as error:
        raise BadImage(f"cannot be read: {error.strerror}") from None


class Form:
    """Size and channels of the samples. 0: the size or channels of the images."""

    def __init__(self, flags, like):
        size = flags["size"]
        sides = re.fullmatch(r"([0-9]+)(?:x([0-9]+))?", size or "")
        self.width, self.height = (int(sides[1]), int(sides[2] or sides[1])) if sides else (0, 0)
        if size and not (1 <= self.width <= _WIDEST and 1 <= self.height <= _WIDEST):
            raise DataError(f"--size is '{size}': use pixels from 1 to {_WIDEST}, as 32, or width and height, as 64x48")
        self.fit, self.short_side = flags["fit"], flags["resize"] or 0
        if self.short_side and (not self.width or self.fit != "crop"):
            raise DataError("--resize needs --size and --fit crop: use --size, and no other --fit")
        if self.short_side and self.short_side < max(self.width, self.height):
            raise DataError(f"--resize {self.short_side} is less than --size {size}: use at least --size")
        self.channels = {"auto": 0, "1": 1, "3": 3}[flags["channels"]]
        if like and len(like.shape) == 3:
            if not self.width:
                self.height, self.width = like.shape[1:]
            self.channels = self.channels or (1 if like.shape[0] == 1 else 3)
        self.bits = int(flags["bits"] or 8)


def _open(data):
    """Returns the image with its header read. Raises BadImage."""
    if not data:
        raise BadImage("is empty")
    try:
        return Image.open(io.BytesIO(data))
    except Image.UnidentifiedImageError:
        raise BadImage("is truncated, damaged, or of a format that Pillow does not read") from None
    except MemoryError:
        raise
    except Exception as error:
        raise _damaged(error) from None


def _damaged(error):
    """Returns the BadImage of an error of Pillow, whose plug-ins raise many classes for damaged files."""
    return BadImage(f"is truncated or damaged: {' '.join(str(error).split()) or type(error).__name__}")


def _is_wide(image):
    """Returns whether samples have 16 bits, which Pillow shows in the mode, or in a raw mode of PNG."""
    if image.mode.startswith("I;16"):
        return True
    tile = getattr(image, "tile", None)
    return image.format == "PNG" and bool(tile) and isinstance(tile[0][3], str) and ";16" in tile[0][3]


def _size(image):
    """Returns width and height after the rotation of EXIF."""
    exif = image.info.get("exif")
    if image.format == "TIFF" or not exif:
        return image.size
    known = Image.Exif()
    with contextlib.suppress(*_BAD_EXIF):
        known.load(exif)
    return image.size[::-1] if known.get(0x0112) in (5, 6, 7, 8) else image.size


def decode(data):
    """Returns samples [height, width, channels], u8 or u16, rotated by EXIF and without transparency. Raises BadImage."""
    image = _open(data)
    if image.width * image.height > _MOST_PIXELS:
        raise BadImage(f"has {image.width} x {image.height} pixels, at most {_MOST_PIXELS}")
    try:
        if image.format == "PNG":
            image.verify()  # checksums of all chunks
            image = _open(data)
        if image.mode in ("I", "F") and not _is_wide(image):  # Pillow 9 reads grey PNG of 16 bits as "I"
            raise BadImage("has samples of 32 bits: convert it to 8 or 16 bits")
        wide, grey = _is_wide(image), image.mode in _GREY
        raw = image.tile[0][3] if wide and not image.mode.startswith("I") else ""
        if raw:  # Pillow keeps the high byte of a sample: a second pass reads the low byte
            grey = raw.startswith("LA")
            planes = [_half_samples(data, raw, low) for low in (False, True)]
            return planes[0].astype(np.uint16) * 256 + planes[1]
        image.load()
        with contextlib.suppress(*_BAD_EXIF):
            image = ImageOps.exif_transpose(image)
        if not wide:
            image = image.convert("L" if grey else "RGB")
        samples = np.asarray(image)
        samples = samples.astype(np.uint16) if wide else samples
        return samples.reshape(*samples.shape[:2], -1)
    except (BadImage, MemoryError):
        raise
    except Exception as error:
        raise _damaged(error) from None


def _half_samples(data, raw, low):
    """Returns the high or low bytes of a PNG image of 16 bits, [height, width, channels]."""
    image = _open(data)
    grey = raw.startswith("LA")
    if grey:  # grey and transparency, read as four bytes: high and low of each
        setattr(image, "_mode" if hasattr(image, "_mode") else "mode", "RGBA")  # "mode" before Pillow 10.1
    args = "RGBA" if grey else f"{raw[:-1]}{'L' if low else 'B'}"
    tile = image.tile[0]  # a plain tuple before Pillow 10
    image.tile = [tile._replace(args=args) if hasattr(tile, "_replace") else (*tile[:3], args)]
    image.load()
    samples = np.asarray(ImageOps.exif_transpose(image))
    return samples[..., int(low):int(low) + 1] if grey else samples[..., :3]


def resize(samples, width, height):
    """Resizes samples by Pillow's bilinear filter, which is antialiased."""
    if samples.shape[:2] == (height, width):
        return samples
    filtered = Image.Resampling.BILINEAR
    if samples.dtype == np.uint8:
        flat = samples[..., 0] if samples.shape[2] == 1 else samples
        out = np.asarray(Image.fromarray(flat).resize((width, height), filtered))
        return out.reshape(height, width, -1)
    planes = [Image.fromarray(samples[..., c].astype(np.float32)).resize((width, height), filtered)
              for c in range(samples.shape[2])]
    return np.rint(np.stack([np.asarray(plane) for plane in planes], -1)).clip(0, 65535).astype(np.uint16)


def crop_middle(samples, width, height):
    """Returns the middle of the image, on black if it is smaller."""
    y, x = round((samples.shape[0] - height) / 2), round((samples.shape[1] - width) / 2)
    out = np.zeros((height, width, samples.shape[2]), samples.dtype)
    part = samples[max(y, 0):y + height, max(x, 0):x + width]
    out[max(-y, 0):max(-y, 0) + part.shape[0], max(-x, 0):max(-x, 0) + part.shape[1]] = part
    return out


def _sized(samples, form):
    height, width = samples.shape[:2]
    if form.short_side:
        longer = form.short_side * max(width, height) // min(width, height)
        sides = (form.short_side, longer) if width < height else (longer, form.short_side)
        return crop_middle(resize(samples, *sides), form.width, form.height)
    if form.fit == "stretch":
        return resize(samples, form.width, form.height)
    x, y = form.width / width, form.height / height
    ratio = max(x, y) if form.fit == "crop" else min(x, y)

    def side(length, wanted, bounds):
        return wanted if bounds else max(1, int(length * ratio + 0.5))
    return crop_middle(resize(samples, side(width, form.width, ratio == x), side(height, form.height, ratio == y)), form.width,
                  form.height)


def formed(samples, form):
    """Returns the samples in the form, [channels, height, width]. Grey is 0.299 red + 0.587 green + 0.114 blue."""
    if form.width:
        samples = _sized(samples, form)
    wide = samples.dtype == np.uint16
    if form.channels == 1 and samples.shape[2] == 3:
        red, green, blue = (samples[..., c].astype(np.uint64) for c in range(3))
        samples = ((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16)[..., None]
    elif form.channels == 3 and samples.shape[2] == 1:
        samples = samples.repeat(3, 2)
    samples = samples.transpose(2, 0, 1)
    if form.bits == 16:
        return samples.astype(np.float32) * np.float32(1 if wide else 257)
    return ((samples.astype(np.uint32) + 128) // 257 if wide else samples).astype(np.uint8)


class ImageSamples(Samples):
    """Images [channels, height, width], u8 or, of 16 bits, f32 with values up to 65535.

    `read(file, most)` returns at most `most` bytes of an image; `places` names each image.
    """

    def __init__(self, files, places, flags, like, read=_read):
        self.files, self.places, self.read, self.count = files, places, read, len(files)
        self.form, self.strict = Form(flags, like), flags.given("strict")
        threads = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
        self.threads = flags["threads"] or (int(threads) if threads.isdigit() else 0) or len(os.sched_getaffinity(0))
        self.left_out, self.narrowed = [], 0
        self.own_size = not self.form.width
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self.own_size or not self.form.channels:
                self._survey()
        self.shape = (self.form.channels, self.form.height, self.form.width)
        self.dtype = np.dtype("f4" if self.form.bits == 16 else "u1")
        self.scale = 1 / (65535 if self.form.bits == 16 else 255)

    def place(self, row):
        return self.places[row]

    def _survey(self):
        """Takes size and channels from the headers of the images."""
        form, first, reason, channels = self.form, None, "", 1
        for place, file in zip(self.places, self.files):
            try:
                image = self._header(file)
            except BadImage as bad:
                reason = reason or f"{place} {bad}"
                continue
            width, height = _size(image)
            grey = image.mode in _GREY or _is_wide(image) and str(image.tile[0][3]).startswith(("LA", "I;"))
            channels = max(channels, 1 if grey else 3)
            first = first or place
            if not form.width:
                form.width, form.height = width, height
            if self.own_size and (width, height) != (form.width, form.height):
                raise DataError(f"{place} has {width} x {height} pixels, {first} has {form.width} x {form.height}: use the size of all by "
                                "--size, as --size 32 or --size 64x48")
        if first is None:
            raise DataError(f"no image of {len(self.files)} can be read: {reason}")
        form.channels = form.channels or channels

    def _header(self, file):
        try:
            return _open(self.read(file, _BEGINNING))
        except BadImage:
            return _open(self.read(file, _MOST_BYTES))

    def _decode(self, file):
        """Returns (samples, reason, narrowed): the samples, or None and the reason."""
        try:
            data = self.read(file, _MOST_BYTES + 1)
            if len(data) > _MOST_BYTES:
                raise BadImage(f"has more than {_MOST_BYTES} bytes")
            samples = decode(data)
            if self.own_size and samples.shape[:2] != (self.form.height, self.form.width):
                raise BadImage(f"has {samples.shape[1]} x {samples.shape[0]} pixels, and other images have another size: use --size")
            return formed(samples, self.form), "", samples.dtype == np.uint16 and self.form.bits == 8
        except BadImage as bad:
            return None, str(bad), False

    def batches(self, size):
        size = min(_AHEAD, max(size, self.threads))
        with warnings.catch_warnings(), ThreadPoolExecutor(self.threads) as pool:
            warnings.simplefilter("ignore")
            for begin in range(0, len(self.files), size):
                rows, images = [], []
                for row, (samples, reason, narrowed) in enumerate(pool.map(self._decode, self.files[begin:begin + size]), begin):
                    if samples is not None:
                        self.narrowed += bool(narrowed)
                        rows.append(row)
                        images.append(samples)
                    elif self.strict:
                        raise DataError(f"{self.places[row]} {reason}: omit --strict to leave the image out")
                    else:
                        self.left_out.append({"path": self.places[row], "reason": reason})
                if rows:
                    yield np.array(rows), np.stack(images)


def read_images(flags, names, data):
    """Adds the part of `from-images`."""
    Form(flags, data.like)
    folder = flags.required("folder")
    listing = list_folder(folder, ENDINGS, names)
    if listing.empty_classes and flags.given("strict"):
        raise DataError(f"{folder} has folders without an image: {', '.join(listing.empty_classes)}")
    if listing.empty_classes:
        data.notes.append(f"folders without an image are no classes: {', '.join(listing.empty_classes)}")
    if listing.others:
        data.notes.append(f"{listing.others} files of other kinds are ignored")
    data.parts.append(listing.part(ImageSamples(listing.paths, listing.paths, flags, data.like)))
