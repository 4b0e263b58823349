"""Writes train/data/reader/tokenizer/unicode_ranges.def: the letters and numbers of Unicode as ranges, by Python's
unicodedata. python3 scripts/lib/unicode_ranges.py"""
import sys
import unicodedata
from pathlib import Path

TARGET = Path(__file__).parents[2] / "train/data/reader/tokenizer/unicode_ranges.def"


def ranges(category):
    found = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code))[0] != category:
            continue
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def lines(macro, category):
    yield from (f"{macro}({first:#x}, {last:#x})" for first, last in ranges(category))


TARGET.write_text("\n".join([
    f"// Unicode {unicodedata.unidata_version}, by scripts/lib/unicode_ranges.py: first and last of each range.",
    "#ifndef FQ_LETTERS", "#define FQ_LETTERS(first, last)", "#endif",
    "#ifndef FQ_NUMBERS", "#define FQ_NUMBERS(first, last)", "#endif",
    *lines("FQ_LETTERS", "L"), *lines("FQ_NUMBERS", "N"), "#undef FQ_LETTERS", "#undef FQ_NUMBERS", ""]))
