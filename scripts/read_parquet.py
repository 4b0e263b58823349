#!/usr/bin/env python3
"""Writes a Parquet file as what `fakequant dataset` reads: a CSV table, or with --image a folder of images in a folder for
each class. Rows are read in batches. Exit status: 0, 2 a file or column that cannot be used, 3 a Python package is
missing. A report (JSON) has the number of rows and the names of the classes, where the file says what they are called."""
import argparse
import csv
import json
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib"))
try:
    import pyarrow
    import pyarrow.parquet

    from parquet_columns import Refused, columns_of, label_names
except ImportError as error:
    print(f"{sys.executable} has no {error.name}: run {sys.executable} -m pip install pyarrow, or name another Python by "
          "--python or FAKEQUANT_PYTHON", file=sys.stderr)
    raise SystemExit(3) from None

ROWS = 4096  # of a batch
ENDINGS = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpg", b"GIF8": "gif", b"RIFF": "webp", b"BM": "bmp", b"II*\0": "tif", b"MM\0*": "tif"}


def chosen(schema, arguments):
    """The names of the columns that are read, in their order."""
    names = schema.names
    asked = arguments.columns.split(",") if arguments.columns else []
    dropped = arguments.drop.split(",") if arguments.drop else []
    for name in asked + dropped + [n for n in (arguments.label, arguments.image) if n]:
        if name not in names:
            raise Refused(f"there is no column '{name}': it has {', '.join(names)}")
    if arguments.image:
        return [name for name in names if name in (arguments.image, arguments.label)]
    return [name for name in names if name == arguments.label or (name not in dropped and (not asked or name in asked))]


def batches(file, names):
    """Lists of values by column, with the row of the first."""
    row = 0
    for batch in file.iter_batches(batch_size=ROWS, columns=names):
        yield row, {name: batch.column(name).to_pylist() for name in names}
        row += batch.num_rows


def text(value):
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)


def write_table(file, names, arguments, classes):
    columns = columns_of(file, names, arguments.label, ROWS)
    rows = 0
    with open(arguments.output, "w", newline="", encoding="utf-8") as out:
        table = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
        table.writerow([heading for column in columns for heading in column.headings()])
        for first, values in batches(file, names):
            count = len(values[names[0]])
            for i in range(count):
                record = [text(v) for column in columns for v in column.values(values[column.name][i], first + i)]
                if classes and arguments.label in names:
                    at = names.index(arguments.label)
                    place = sum(len(column.headings()) for column in columns[:at])
                    record[place] = class_name(record[place], classes, first + i)
                table.writerow(record)
            rows += count
    return rows


def class_name(value, classes, row):
    if not value:
        return value
    if not value.isdigit() or int(value) >= len(classes):
        raise Refused(f"row {row} has the label {value}, and the file names {len(classes)} classes")
    return classes[int(value)]


def image_bytes(value, row, column):
    data = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(data, bytes) or not data:
        raise Refused(f"column '{column}' has no bytes of an image in row {row}: images that lie elsewhere are not read")
    return data


def ending(data):
    return next((name for mark, name in ENDINGS.items() if data.startswith(mark)), "png")


def folder_of(label, classes, row):
    name = class_name(text(label), classes, row) if classes else text(label)
    if not name or name.startswith(".") or "/" in name or "\0" in name or name in ("train", "val", "test") or len(name) > 200:
        raise Refused(f"row {row} has the label '{name}', which cannot be the name of a class of images")
    return name


def write_images(file, names, arguments, classes):
    rows = 0
    for first, values in batches(file, names):
        for i, value in enumerate(values[arguments.image]):
            data = image_bytes(value, first + i, arguments.image)
            label = folder_of(values[arguments.label][i], classes, first + i) if arguments.label else ""
            folder = os.path.join(arguments.output, label)
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, f"{first + i:09d}.{ending(data)}"), "wb") as out:
                out.write(data)
            rows += 1
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("output")
    for name in ("label", "image", "columns", "drop"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--report")
    arguments = parser.parse_args()
    try:
        with pyarrow.parquet.ParquetFile(arguments.file, page_checksum_verification=True) as file:
            names = chosen(file.schema_arrow, arguments)
            classes = label_names(file.schema_arrow, arguments.label)
            write = write_images if arguments.image else write_table
            rows = write(file, names, arguments, classes)
    except (Refused, pyarrow.ArrowException, OSError, ValueError) as error:
        print(f"{arguments.file}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    if arguments.report:
        with open(arguments.report, "w", encoding="utf-8") as out:
            json.dump({"rows": rows, "classes": classes}, out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
