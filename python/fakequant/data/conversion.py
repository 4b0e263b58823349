"""Converts a source to a data set file: reads the samples, draws the groups, writes, and reports."""
import importlib

from .common import DataError, check_packages
from .flags import PARTS, Flags

_READERS = {"from-images": ("images", "read_images"), "from-npy": ("arrays", "read_npy"), "from-idx": ("arrays", "read_idx"),
            "from-csv": ("tables", "read_csv"), "from-parquet": ("parquet", "read_parquet"), "from-text": ("text", "read_texts")}


def _check_same(parts):
    """Raises DataError unless all parts have samples of one type, and labels of one task and shape."""
    first = parts[0]
    for part in parts[1:]:
        a, b = first.samples, part.samples
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            raise DataError(f"training samples are {list(a.shape)} {a.dtype_name}, and test samples {list(b.shape)} "
                            f"{b.dtype_name}: use the same shape and type")
        if first.labels.task != part.labels.task:
            raise DataError("only the training samples or only the test samples have labels: use both, or --task none")
        if first.labels.values is not None and first.labels.values.shape[1:] != part.labels.values.shape[1:]:
            raise DataError(f"training labels are {list(first.labels.values.shape)}, and test labels "
                            f"{list(part.labels.values.shape)}: use the same shape")


def _class_names(flags, like):
    from .reader import split_names
    if flags["classes"] and like:
        raise DataError("--classes and --like both set the classes: use one of them")
    names = like.classes if like else split_names(flags["classes"])
    for name in names:
        if not like and names.count(name) > 1:
            raise DataError(f"--classes names '{name}' more than once")
    return names


def _check_like(flags, data):
    from .writer import dtype_name
    samples, like = data.parts[0].samples, data.like
    if tuple(like.shape) != tuple(samples.shape) or not samples.tokens and like.dtype != samples.dtype:
        raise DataError(f"samples are {list(samples.shape)} {samples.dtype_name}, and samples of --like {like.path} {list(like.shape)} "
                        f"{dtype_name(like.dtype)}: use the same shape and type")
    if flags.given("scale") and like.mean is not None:
        raise DataError(f"--like {like.path} sets the mean and deviation: leave --scale out")


def _doubts(flags, data, writer):
    """Yields notes on values, classes and groups that may be wrong."""
    samples, labels, found = data.parts[0].samples, data.parts[0].labels, writer.statistics
    if not samples.tokens and writer.mean is None:
        if writer.scale == 0 and found.smallest >= 0 and 128 <= found.largest <= 255:
            yield (f"values go up to {found.largest:g}: --scale {1 / 255:.9g} makes them 0 to 1; --scale 1 keeps them and removes this "
                   "note")
        if samples.dtype == "u1" and len(samples.shape) == 3 and writer.scale == 1 / 255 and 0 < found.largest < 128:
            yield f"the largest value is {found.largest:g}, and 255 becomes 1: --scale {1 / found.largest:.9g} makes it 1"
    if labels.task == "classes" and writer.classes == 1:
        yield "all samples have one class: a network learns nothing from them"
    for group, name in ((2, "test"), (1, "val")):
        if flags[name] > 0 and not writer.rows[group]:
            yield (f"no sample is left for the group {name}: the only sample of a class is for training. Evaluate with --split train, or "
                   "make a data set of another file")


def _labels_text(labels, classes):
    if labels.task == "classes":
        names = ", ".join(labels.names[:12]) + (", .." if len(labels.names) > 12 else "")
        return f"{classes} class{'' if classes == 1 else 'es'}{names and ': ' + names}"
    several = labels.values is not None and labels.values.ndim > 1
    return {"none": "no labels", "several": f"several of {classes} labels", "dense": f"a label of {classes} classes for each position",
            "real": f"{labels.values.shape[1]} real labels" if several else "real labels"}[labels.task]


def _report(flags, data, writer):
    """Returns (lines, report): the text for people, and the result for programs."""
    from .splits import GROUPS
    samples, labels, output = data.parts[0].samples, data.parts[0].labels, flags["output"]
    groups = {name: count for name, count in zip(GROUPS, writer.rows) if count}
    kind = "token ids" if samples.tokens else samples.dtype_name
    lines = [f"{name:<6} {count} samples of {list(samples.shape)} {kind}, {_labels_text(labels, writer.classes)}"
             for name, count in groups.items()]
    lines += [f"left out: {writer.left_out}"] * bool(writer.left_out)
    lines += [f"note: {note}" for note in data.notes] + [f"written to {output}"]
    lines += [f"left out: {one['path']} {one['reason']}" for one in samples.left_out[:10]]
    if len(samples.left_out) > 10:
        lines.append(f"and {len(samples.left_out) - 10} more: --json lists them")
    report = {"output": output, "groups": groups, "shape": list(samples.shape), "dtype": samples.dtype_name, "scale": writer.scale or None,
              "task": labels.task, "classes": writer.classes, "class_names": list(labels.names), "left_out": writer.left_out,
              "notes": data.notes, **data.report}
    if data.columns:
        report["columns"] = data.columns
    if hasattr(samples, "narrowed"):
        report |= {"skipped": samples.left_out[:1000], "narrowed": samples.narrowed}
        if samples.narrowed:
            lines.append(f"note: {samples.narrowed} images have samples of 16 bits, stored with 8 bits: --bits 16 keeps 16 bits")
    return lines, report


def convert(part, values, progress=lambda done, total: None):
    """Writes the data set that the flags describe. Returns (lines, report): the text for people, and the result for programs."""
    flags = Flags(PARTS[part], values)
    extra = {"from-images": ["PIL"], "from-parquet": ["pyarrow"]}.get(part, []) + ["PIL"] * flags.given("image")
    check_packages([*extra, "numpy", "h5py"])
    from .reader import check_output, read_properties
    from .splits import draw_groups
    from .writer import DataSet, Writer
    check_output(flags.required("output"), flags.files(), flags.given("force"))
    data = DataSet(read_properties(flags["like"]) if flags["like"] else None, normalize=flags.given("normalize"), scale=flags["scale"])
    module, function = _READERS[part]
    read = getattr(importlib.import_module(f".{module}", __package__), function)  # imports only the packages of this part
    read(flags, _class_names(flags, data.like), data)
    _check_same(data.parts)
    if data.like:
        _check_like(flags, data)
    for one in data.parts:
        if one.groups is None:
            one.groups = draw_groups(flags, one, len(data.parts) > 1)
    writer = Writer(data, progress)
    writer.write(flags["output"])
    data.notes += _doubts(flags, data, writer)
    return _report(flags, data, writer)
