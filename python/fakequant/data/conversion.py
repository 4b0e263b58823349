"""Converts a source to a data set file: reads the samples, draws the groups, writes, and reports."""
from .common import DataError, one_line_name
from .like import read_like, split_names
from .splits import GROUPS, TEST, TRAIN, VALIDATION, split
from .writer import Options, check_output, dtype_name, write


def _check_same(parts):
    """Raises DataError unless all parts have samples of one type, and labels of one task and shape."""
    first = parts[0]
    for part in parts[1:]:
        a, b = first.samples, part.samples
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            raise DataError(f"samples for training are {list(a.shape)} {a.dtype_name}, those for the test {list(b.shape)} "
                            f"{b.dtype_name}: they must be alike")
        if first.labels.task != part.labels.task:
            raise DataError("one of the two has labels and the other has none: give both, or --task none")
        if first.labels.values is not None and first.labels.values.shape[1:] != part.labels.values.shape[1:]:
            raise DataError(f"labels for training are {list(first.labels.values.shape)}, those for the test "
                            f"{list(part.labels.values.shape)}: they must be alike")


def _draw_groups(flags, part, test_elsewhere):
    validation = flags.number("val", 0, 1)
    test = 0.0 if test_elsewhere and not flags.given("test") else flags.number("test", 0, 1)
    seed = flags.integer("seed", 0, 1 << 53)
    return split(part.labels.values if part.labels.task == "classes" else None, len(part.samples), validation, test, seed)


def _class_names(flags, like):
    if flags.text("classes") and like:
        raise DataError("--classes and --like both name classes: give one of them")
    names = like.classes if like else split_names(flags.text("classes"))
    for name in names:
        if not like and names.count(name) > 1:
            raise DataError(f"--classes names '{name}' more than once")
    return names


def _take_like(flags, parts, options, like):
    samples = parts[0].samples
    if like:
        if tuple(like.shape) != tuple(samples.shape) or not samples.tokens and like.dtype != samples.dtype:
            raise DataError(f"samples are {list(samples.shape)} {samples.dtype_name}, those of --like {like.path} are "
                            f"{list(like.shape)} {dtype_name(like.dtype)}: they must be alike")
        if flags.given("scale") and like.mean is not None:
            raise DataError(f"--like {like.path} has a mean and a deviation of its own: leave --scale out")
        options.like = like
    if flags.given("scale"):
        options.scale = flags.number("scale", 1e-30, 1e30)
    options.normalize |= flags.on("normalize")


def _doubts(flags, parts, found):
    """Notes on what should be doubted."""
    samples, labels = parts[0].samples, parts[0].labels
    if not samples.tokens and found.mean is None:
        if found.scale == 0 and found.smallest >= 0 and 128 <= found.largest <= 255:
            yield (f"values go up to {found.largest:g}, and the network sees them so: --scale {1 / 255:.9g} makes them 0 to 1; --scale 1 "
                   "says that they are right")
        if samples.dtype == "u1" and len(samples.shape) == 3 and found.scale == 1 / 255 and 0 < found.largest < 128:
            yield f"the largest value is {found.largest:g}, and 255 becomes 1: --scale {1 / found.largest:.9g} makes it 1"
    if labels.task == "classes" and found.classes == 1:
        yield "all samples are of one class: a network has nothing to tell apart"
    for name, group in (("test", TEST), ("val", VALIDATION)):
        if flags.number(name, 0, 1) > 0 and not found.rows[group]:
            yield (f"no sample is left for the group {name}: of one of a kind the only one is for training; evaluate and others that "
                   "read it take --split train, or make it of another file")


def _labels_text(labels, classes):
    if labels.task == "classes":
        names = ", ".join(map(one_line_name, labels.names[:12])) + (", .." if len(labels.names) > 12 else "")
        return f"{classes} class{'' if classes == 1 else 'es'}{names and ': ' + names}"
    several = labels.values is not None and labels.values.ndim > 1
    return {"none": "no labels", "several": f"several of {classes} labels", "dense": f"a label of {classes} classes for each place",
            "real": f"{labels.values.shape[1]} real labels" if several else "real labels"}[labels.task]


def convert(flags, progress):
    """Writes the data set that the flags describe. Returns (lines, report)."""
    part, output = flags.part.name, flags.required("output")
    check_output(output, flags.files(), flags.on("force"))
    label = f"dataset {part}"
    like = read_like(flags.text("like")) if flags.text("like") else None
    names, notes, options, fields = _class_names(flags, like), [], Options(), {}
    if part == "from-npy":
        from .arrays import npy_parts
        parts = npy_parts(flags, names, notes)
    elif part == "from-idx":
        from .arrays import idx_parts
        parts = idx_parts(flags, names, notes)
    elif part == "from-csv":
        from .tables import csv_parts
        parts, options = csv_parts(flags, names, notes, like)
    elif part == "from-parquet":
        from .parquet import parquet_parts
        parts, options = parquet_parts(flags, names, notes, like, progress)
    elif part == "from-images":
        from .images import folder_parts
        parts, options = folder_parts(flags, names, notes, like, progress)
    else:
        from .text import text_parts
        parts, options, fields = text_parts(flags, names, notes, like, lambda part, elsewhere: _draw_groups(flags, part, elsewhere))
    _check_same(parts)
    _take_like(flags, parts, options, like)
    for one in parts:
        if one.groups is None:
            one.groups = _draw_groups(flags, one, len(parts) > 1)
    total = sum(len(one.samples) for one in parts)
    found = write(output, parts, options, lambda done: progress(label, done, total))
    notes += _doubts(flags, parts, found)
    samples, labels = parts[0].samples, parts[0].labels
    lines = [f"{GROUPS[group]:<6} {found.rows[group]} samples of {list(samples.shape)} "
             f"{'token ids' if samples.tokens else samples.dtype_name}, {_labels_text(labels, found.classes)}"
             for group in (TRAIN, VALIDATION, TEST) if found.rows[group]]
    lines += [f"left out: {found.left_out}"] * bool(found.left_out)
    lines += [f"note: {note}" for note in notes] + [f"written to {output}"]
    report = {"output": output, "groups": {GROUPS[group]: count for group, count in enumerate(found.rows) if count},
              "shape": list(samples.shape), "dtype": samples.dtype_name, "scale": found.scale or None, "task": labels.task,
              "classes": found.classes, "class_names": list(labels.names), "left_out": found.left_out, "notes": notes, **fields}
    if hasattr(samples, "report"):
        more, images = samples.report()
        lines += more
        report |= images
    if options.columns:
        report["columns"] = options.columns
    return lines, report
