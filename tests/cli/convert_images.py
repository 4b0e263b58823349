"""fakequant dataset from-images: pixels equal Pillow's for all colours, bit depths, orientations and sizes; images that
cannot be read are left out and reported."""

import os
import shutil
import struct
import sys
import zlib

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import TINY, fails, result, run, same_bytes, sanitized  # noqa: E402

try:
    from PIL import Image, ImageOps
except ImportError:
    print("SKIPPED: there is no Pillow (python3-pil)")
    sys.exit(77)

RANDOM = np.random.default_rng(0)


def from_images(folder, *more):
    return ["dataset", "from-images", folder, *more, "-o", "out.h5"]


def write_image(path, picture, **more):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    picture.save(path, **more)
    return path


def smooth(height, width, channels=3):
    """A picture that JPEG changes little."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 100 * np.sin(x / (9 + c) + y / (13 - c) + c) for c in range(channels)]
    return np.stack(planes, axis=-1).clip(0, 255).astype(np.uint8).squeeze()


def read(part="x", group="train"):
    with h5py.File("out.h5") as file:
        return file[group][part][...]


def pixels(picture, mode="RGB"):
    array = np.asarray(picture.convert(mode))
    return array[None] if mode == "L" else array.transpose(2, 0, 1)


def only(name, *more):
    """The pixels of one file."""
    folder = "only"
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    shutil.copy(name, folder)
    run(*from_images(folder, "--test", "0", *more))
    return read()[0]


# Modes of PNG and JPEG, exactly as Pillow reads them.
rgb = Image.fromarray(smooth(37, 29))
grey = rgb.convert("L")
alpha = rgb.convert("RGBA")
alpha.putalpha(grey)
os.makedirs("modes")
modes = {"rgb.png": rgb, "grey.png": grey, "alpha.png": alpha, "grey_alpha.png": alpha.convert("LA"), "palette.png": rgb.quantize(40),
         "bits.png": grey.convert("1"), "four.png": grey.quantize(16), "rgb.jpg": rgb, "grey.jpeg": grey, "big.JPG": rgb}
for name, picture in modes.items():
    path = write_image(f"modes/{name}", picture)
    with Image.open(path) as opened:
        flat = opened.mode in ("L", "1", "LA")
        assert np.array_equal(only(path), pixels(opened, "L" if flat else "RGB")), name
        assert only(path, "--channels", "3").shape[0] == 3
        assert np.abs(only(path, "--channels", "1").astype(int) - pixels(opened.convert("RGB"), "L")).max() <= (0 if not flat else 0), name
for name, more in (("progressive.jpg", {"progressive": True}), ("quality.jpg", {"quality": 30, "subsampling": 2}), ("small.png", {"optimize": True})):
    path = write_image(f"modes/{name}", rgb, **more)
    with Image.open(path) as opened:
        assert np.array_equal(only(path), pixels(opened)), name
# CMYK: both round a product of two bytes, by one at most otherwise.
path = write_image("modes/cmyk.jpg", rgb.convert("CMYK"), quality=95)
with Image.open(path) as opened:
    assert opened.mode == "CMYK" and np.abs(only(path).astype(int) - pixels(opened)).max() <= 1
assert np.abs(only(path).astype(int) - pixels(rgb)).max() < 40, "inks are not inverted"


# 16 bits, which Pillow reads of grey only: written here.
def png16(samples):
    height, width = samples.shape[:2]
    kind = 0 if samples.ndim == 2 else 2
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in samples)

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0)) + chunk(
        b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


for shape in ((9, 7), (9, 7, 3)):
    deep = RANDOM.integers(0, 65536, shape).astype(np.uint16)
    with open("modes/deep.png", "wb") as file:
        file.write(png16(deep))
    expected = deep[None] if deep.ndim == 2 else deep.transpose(2, 0, 1)
    assert np.array_equal(only("modes/deep.png", "--bits", "16"), expected.astype(np.float32))
    with h5py.File("out.h5") as file:
        assert file["train/x"].attrs["scale"] == 1 / 65535
    assert np.array_equal(only("modes/deep.png"), np.rint(expected / 257).astype(np.uint8))
    assert "--bits 16" in run(*from_images("only")).stdout
assert np.array_equal(only("modes/rgb.png", "--bits", "16"), pixels(rgb).astype(np.float32) * 257)

# Every turn that a camera writes, in both formats and both byte orders.
for orientation in range(1, 9):
    exif = Image.Exif()
    exif[0x0112] = orientation
    for name in ("turned.jpg", "turned.png"):
        path = write_image(f"modes/{name}", rgb, exif=exif.tobytes())
        with Image.open(path) as opened:
            assert np.array_equal(only(path), pixels(ImageOps.exif_transpose(opened))), (name, orientation)
    motorola = b"Exif\0\0MM\0*" + struct.pack(">IHHHIHHI", 8, 1, 0x0112, 3, 1, orientation, 0, 0)
    path = write_image("modes/turned.jpg", rgb, exif=motorola)
    with Image.open(path) as opened:
        assert np.array_equal(only(path), pixels(ImageOps.exif_transpose(opened))), orientation
# .. also if the orientation is stored after the samples.
plain, turned = (open(write_image(f"modes/{name}.png", rgb, **more), "rb").read() for name, more in (("plain", {}), ("exif", {"exif": exif.tobytes()})))
begin = turned.index(b"eXIf") - 4
chunk = turned[begin:begin + 12 + struct.unpack(">I", turned[begin:begin + 4])[0]]
with open("modes/behind.png", "wb") as file:
    file.write(plain[:-12] + chunk + plain[-12:])
with Image.open("modes/exif.png") as opened:
    assert np.array_equal(only("modes/behind.png", "--size", "37x29"), pixels(ImageOps.exif_transpose(opened)))
for index in range(0, 40, 3):  # damaged metadata changes at most the orientation
    damaged = bytearray(motorola)
    damaged[6 + index % (len(damaged) - 6)] ^= 0xFF
    assert only(write_image("modes/turned.jpg", rgb, exif=bytes(damaged))).size == 37 * 29 * 3

# Sizes: by the same filter as Pillow's, whose weights have 8 bits (one step; two where both sides were rounded).
large = Image.fromarray(smooth(90, 61))
write_image("sizes/large.png", large)


def near(found, expected, steps=1):
    assert found.shape == expected.shape and np.abs(found.astype(int) - expected).max() <= steps


bilinear = Image.Resampling.BILINEAR
for width, height in ((20, 30), (61, 90), (122, 45), (200, 200), (1, 1), (61, 7)):
    near(only("sizes/large.png", "--size", f"{width}x{height}", "--fit", "stretch"), pixels(large.resize((width, height), bilinear)))
near(only("sizes/large.png", "--size", "32"), pixels(large.resize((32, 47), bilinear).crop((0, 8, 32, 40))))
padded = np.zeros((3, 32, 32), np.uint8)
padded[:, :, 5:27] = pixels(large.resize((22, 32), bilinear))
near(only("sizes/large.png", "--size", "32", "--fit", "pad"), padded)
near(only("sizes/large.png", "--size", "24", "--resize", "40"), pixels(large.resize((40, 59), bilinear).crop((8, 18, 32, 42))))
fails(2, "--size", *from_images("sizes", "--size", "0"))
fails(2, "--size is '3x'", *from_images("sizes", "--size", "3x"))
fails(2, "--size", *from_images("sizes", "--resize", "40"))
fails(2, "--resize 8 is less", *from_images("sizes", "--resize", "8", "--size", "16"))

# Classes, groups and splits from folders.
for label in ("cat", "dog", "\u732b"):
    for i in range(20):
        write_image(f"animals/{label}/{i:02}.png", Image.fromarray(RANDOM.integers(0, 256, (8, 8)).astype(np.uint8)))
write_image("animals/cat/deeper/20.png", grey.resize((8, 8)))
found = result(*from_images("animals", "--val", "0.1"))
assert found["class_names"] == ["cat", "dog", "\u732b"] and found["shape"] == [1, 8, 8], found
assert found["groups"] == {"train": 43, "val": 6, "test": 12} and not found["skipped"], found
assert all(abs(count - 4) <= 1 for count in np.bincount(read("y", "test")))
run(*from_images("animals", "--val", "0.1", "--threads", "1"))
shutil.copy("out.h5", "one.h5")
run(*from_images("animals", "--val", "0.1", "--threads", "3"))
assert same_bytes("out.h5", "one.h5"), "threads change the file"
run("train", *TINY, "--data", "out.h5", "--epochs", "1", "--batch", "16", "-o", "net.h5")
shutil.copytree("animals", "split/train")
shutil.copytree("animals/dog", "split/TEST/dog")
found = result(*from_images("split"))
assert found["groups"] == {"train": 61, "test": 20} and set(read("y", "test")) == {1}, found
shutil.copytree("animals/dog", "loose")
found = result(*from_images("loose"))
assert found["task"] == "none" and found["groups"] == {"train": 16, "test": 4}, found
shutil.copytree("animals/dog", "other/dog")
found = result(*from_images("other", "--like", "one.h5", "--test", "1"))
assert set(read("y", "test")) == {1} and found["class_names"] == ["cat", "dog", "\u732b"], found
write_image("other/dog/large.png", rgb.resize((50, 40)))
assert result(*from_images("other", "--like", "one.h5", "--test", "1"))["shape"] == [1, 8, 8], "the size of --like"
fails(2, ["[1, 8, 8] f32", "[1, 8, 8] u8"], *from_images("other", "--like", "one.h5", "--test", "1", "--bits", "16"))
os.remove("other/dog/large.png")
shutil.copytree("animals/dog", "other/emu")
fails(2, ["'emu'", "cat, dog"], *from_images("other", "--like", "one.h5"))
with open("animals/cat/.hidden.png", "wb") as file:
    file.write(b"nothing")
with open("animals/cat/notes.txt", "wb") as file:
    file.write(b"nothing")
assert "1 files of other kinds" in run(*from_images("animals")).stdout

# Unreadable input.
os.makedirs("animals/empty")
assert "no classes: empty" in run(*from_images("animals")).stdout
fails(2, "folders without an image: empty", *from_images("animals", "--strict"))
os.rmdir("animals/empty")
whole_png, whole_jpg = (open(path, "rb").read() for path in ("modes/rgb.png", "modes/rgb.jpg"))
bad = {"cut.png": whole_png[:-300], "end.png": whole_png[:-5], "crc.png": whole_png[:-40] + b"\0\0\0\0" + whole_png[-36:], "cut.jpg": whole_jpg[:-200],
       "end.jpg": whole_jpg[:len(whole_jpg) // 2], "empty.png": b"", "text.png": b"hello", "head.png": whole_png[:20], "head.jpg": whole_jpg[:20],
       "wide.png": png16(np.zeros((2, 2), np.uint16)).replace(struct.pack(">II", 2, 2), struct.pack(">II", 900000, 900000), 1)}
for name, contents in bad.items():
    with open(f"animals/dog/{name}", "wb") as file:
        file.write(contents)
write_image("animals/dog/anim.gif", grey)  # formats that Pillow reads
write_image("animals/dog/photo.webp", rgb)
os.symlink("nowhere", "animals/dog/link.png")
found = result(*from_images("animals", "--size", "8"))
skipped = {os.path.basename(entry["path"]): entry["reason"] for entry in found["skipped"]}
assert set(skipped) == set(bad) | {"link.png"} and found["left_out"] == len(skipped), skipped
assert sum(found["groups"].values()) == 63 and skipped["empty.png"] == "is empty", skipped
assert all("truncated" in skipped[name] for name in ("cut.png", "end.png", "cut.jpg", "end.jpg", "head.png", "head.jpg")), skipped
text = run(*from_images("animals", "--size", "8")).stdout
assert "left out: 11" in text and text.count("left out: animals/dog/") == 10 and "and 1 more" in text, text
fails(2, ["animals/dog/", "--strict"], *from_images("animals", "--size", "8", "--strict"))
for name, contents in bad.items():
    if name != "crc.png":
        os.makedirs("alone", exist_ok=True)
        with open(f"alone/{name}", "wb") as file:
            file.write(contents)
fails(2, ["no", "alone"], *from_images("alone", "--size", "8"))
done = run(*from_images("alone"), status=2)
assert done.stderr.count("\n") == 1, done
for index in range(8, len(whole_jpg), 41):  # damage anywhere breaks nothing
    for kind, whole in (("jpg", whole_jpg), ("png", whole_png)):
        at = index % len(whole)
        with open(f"fuzz.{kind}", "wb") as file:
            file.write(whole[:at] + bytes([whole[at] ^ 0x5A]) + whole[at + 1:])
        shutil.rmtree("fuzzed", ignore_errors=True)
        os.makedirs("fuzzed")
        shutil.copy(f"fuzz.{kind}", "fuzzed")
        done = run(*from_images("fuzzed", "--size", "8", "--channels", "3"), status=None)
        assert done.returncode == 0 or done.returncode == 2 and done.stderr.count("\n") == 1, (at, done)
fails(2, ["large.png has 61 x 90", "rgb.png", "--size"], *from_images(shutil.copytree("sizes", "mixed", dirs_exist_ok=True) and shutil.copy(
    "modes/rgb.png", "mixed/a_rgb.png") and "mixed"))
os.makedirs("void")
fails(2, ["void has no file that ends in .png"], *from_images("void"))
fails(2, "a PNG image, not a folder", *from_images("modes/rgb.png"))
fails(2, "is not a folder", *from_images("missing"))
shutil.make_archive("packed", "zip", "animals")
fails(2, ["a zip archive, not a folder", "unpacked"], *from_images("packed.zip"))
write_image("beside/a.png", grey), write_image("beside/cat/a.png", grey)
fails(2, ["1 files next to folders of classes"], *from_images("beside"))
write_image("vehicles/train/a.png", grey), write_image("vehicles/bus/a.png", grey)  # a class that is called so
assert result(*from_images("vehicles", "--test", "0"))["class_names"] == ["bus", "train"]
write_image("lines/a\nb/a.png", grey), write_image("lines/c/a.png", grey)  # names with line ends stay in one line
os.makedirs("lines/no\nne")
with open("lines/c/da\nmaged.png", "wb") as file:
    file.write(b"hello")
printed = run(*from_images("lines", "--test", "0")).stdout
assert "2 classes: a\\x0ab, c\n" in printed and "are no classes: no\\x0ane\n" in printed and "left out: lines/c/da\\x0amaged.png " in printed, printed
write_image("half/train/a/a.png", grey), write_image("half/b/a.png", grey)
fails(2, ["groups", "'b'"], *from_images("half"))

# A folder is not read into memory at once: four times the images need no more memory.
for name, count in (("few", 200), ("lots", 800)):
    for i in range(count):
        write_image(f"{name}/c/{i:04}.png", Image.fromarray(np.full((200, 200, 3), i % 251, np.uint8)), compress_level=1)
peaks = {}
for name in ("few", "lots"):
    pid = os.posix_spawn(os.environ["FAKEQUANT"], ["fakequant", *from_images(name, "--threads", "1")], os.environ,
                         file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
    _, status, usage = os.wait4(pid, 0)
    assert status == 0
    peaks[name] = usage.ru_maxrss * 1024
assert sanitized() or peaks["lots"] - peaks["few"] < 20 << 20, peaks  # 600 images of 120 kB more are 72 MB
print("convert images: ok")
