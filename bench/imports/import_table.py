"""import_table.py FOLDER [--out FILE] [--modules | --transformers] [NETWORK...]: see scripts/import_table."""

import argparse
import glob
import io
import json
import logging
import os
import subprocess
import sys
import warnings
import zipfile

import h5py
import numpy as np
import onnx
import onnxruntime
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import import_modules  # noqa: E402
import import_transformers  # noqa: E402
from import_networks import NETWORKS, made  # noqa: E402
from onnx_light import filled, light_files  # noqa: E402

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
# Files of other projects in PyPI wheels: package, name inside, shape of an input.
WHEELS = {
    "PP-OCRv2 angle classifier": ("rapidocr-onnxruntime", "ch_ppocr_mobile_v2.0_cls_infer.onnx", [1, 3, 48, 192]),
    "PP-OCRv4 text detector": ("rapidocr-onnxruntime", "ch_PP-OCRv4_det_infer.onnx", [1, 3, 96, 160]),
    "PP-OCRv4 text recogniser": ("rapidocr-onnxruntime", "ch_PP-OCRv4_rec_infer.onnx", [1, 3, 48, 320]),
    "basic-pitch": ("basic-pitch", "nmp.onnx", [1, 43844, 1]),
}
EXPORTERS = {"dynamo": {"dynamo": True, "external_data": False, "verbose": False}, "script": {"dynamo": False, "opset_version": 17}}


def command(*words):
    """Runs a command. Returns its JSON output, or the reason of its failure."""
    done = subprocess.run([os.environ["FAKEQUANT"], *words, "--json"], capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    found = json.loads(lines[-1]) if lines else None
    if done.returncode != 0:
        return found, done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}"
    return found, ""


def export(model, x, path, exporter):
    shapes = ({0: torch.export.Dim.DYNAMIC},) if exporter == "dynamo" else None
    options = {"dynamic_shapes": shapes} if shapes else {"dynamic_axes": {"x": {0: "N"}}, "input_names": ["x"]}
    out = sys.stdout
    sys.stdout = io.StringIO()  # exporters print
    try:
        torch.onnx.export(model, (x,), path, **EXPORTERS[exporter], **options)
    finally:
        sys.stdout = out


def run(path, x, output=0):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = session.get_inputs()[0]
    return session.run(None, {given.name: x.astype(np.int64 if "int" in given.type else np.float32)})[output]


class Row:
    """One file through all commands."""

    def __init__(self, folder, name, x):
        self.base, self.x = os.path.join(folder, "".join(c if c.isalnum() else "_" for c in name)), x

    def path(self, end):
        return f"{self.base}{end}"

    def imported(self, file):
        """The largest difference from ONNX Runtime, relative to the largest value."""
        outputs = onnx.load(file).graph.output
        words = ["--output-name", outputs[0].name] if len(outputs) > 1 else []
        sizes = ",".join(str(size) for size in self.x.shape[1:])
        for shape in (["--input-shape", sizes], []):
            _, why = command("import", file, "-o", self.path(".h5"), "--force", *shape, *words)
            if "does not fit" not in why:
                break
        if why:
            return None, why
        _, why = command("export", self.path(".h5"), "--format", "onnx", "-o", self.path("_float.onnx"), "--force")
        if why:
            return None, why
        wanted, found = run(file, self.x), run(self.path("_float.onnx"), self.x)
        off, largest = float(np.abs(wanted - found).max()), float(np.abs(wanted).max())
        if largest < 1e-3:  # the engine's own sigmoid is off by 1e-7
            return f"{off:.1e} of outputs up to {largest:.0e}", ""
        return f"{off / largest:.1e}", ""

    def data(self, output):
        """A data set of random samples: classes for outputs that are a list of numbers, else numbers."""
        random = np.random.default_rng(2)
        classes = output[1] if len(output) == 2 and output[1] > 1 else 0
        ids = self.x.dtype == np.int64
        with h5py.File(self.path("_data.h5"), "w") as file:
            for split in ("train", "test"):
                shape = (16, *self.x.shape[1:])
                x = random.integers(0, 64, shape) if ids else random.standard_normal(shape).astype(np.float32)
                file[f"{split}/x"] = x
                y = np.arange(16) % classes if classes else random.standard_normal((16, *output[1:]), np.float32)
                file[f"{split}/y"] = y
        return [] if classes else ["--loss", "mse"]

    def quantized(self, output):
        """Returns the results of PTQ, QAT, export and verification for a network with outputs of that shape."""
        task = self.data(output)
        data = ["--data", self.path("_data.h5")]
        said = []
        _, why = command("calibrate", self.path(".h5"), *data, "--preset", "int8", "-o", self.path("_ptq.h5"), "--force")
        said.append(why or "yes")
        last = "_ptq.h5"
        if not why:
            _, why = command("qat", self.path("_ptq.h5"), *data, *task, "--epochs", "1", "--batch", "8", "-o", self.path("_qat.h5"), "--force")
            said.append(why or "yes")
            last = last if why else "_qat.h5"
        else:
            said.append("")
        _, why = command("export", self.path(last), "--format", "onnx", "-o", self.path("_int8.onnx"), "--force")
        said.append(why or "yes")
        found, why = (None, "") if why else command("verify", self.path("_int8.onnx"), "--checkpoint", self.path(last), *data)
        compared = f"{found['codes_different']} of {found['codes']}" if found and "codes_different" in found else why
        if found and found.get("float_kernels"):
            compared += f", {len(found['float_kernels'])} float kernels"
        said.append(compared)
        return said


def cells(difference, why, operators, said):
    shown = difference if difference is not None else f"refused: {why}"
    return [operators, shown, *(said or ["", "", "", ""])]


def operator_count(file):
    return str(len({node.op_type for node in onnx.load(file, load_external_data=False).graph.node}))


def torch_rows(folder, names):
    for name in names:
        model, x = made(name)
        row = Row(folder, name, x.numpy())
        said = None
        for exporter in EXPORTERS:
            file = row.path(f"_{exporter}.onnx")
            try:
                export(model, x, file, exporter)
            except Exception as error:  # exporters raise any type of error
                yield [name, NETWORKS[name][0] or "here", exporter, "", f"not exported: {str(error).splitlines()[0][:90]}", "", "", "", ""]
                continue
            difference, why = row.imported(file)
            if difference is not None and said is None:
                said = row.quantized(run(file, row.x).shape)
                yield [name, NETWORKS[name][0] or "here", exporter, *cells(difference, why, operator_count(file), said)]
            else:
                yield [name, NETWORKS[name][0] or "here", exporter, *cells(difference, why, operator_count(file), None)]


def whole_row(row, file, operators):
    """Returns the cells of a file of another project."""
    difference, why = row.imported(file)
    return cells(difference, why, operators, row.quantized(run(file, row.x).shape) if difference is not None else None)


def light_rows(folder, names):
    for name, source in light_files().items():
        if name not in names:
            continue
        x = np.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype(np.float32)
        row = Row(folder, name, x)
        filled(source, row.path("_filled.onnx"))
        yield [name, "onnx's model zoo", "Caffe2", *whole_row(row, row.path("_filled.onnx"), operator_count(source))]


def wheel_rows(folder, names):
    for name in names:
        package, inside, shape = WHEELS[name]
        wheels = os.path.join(folder, "wheels")
        subprocess.run([sys.executable, "-I", "-m", "pip", "download", "-q", "--no-deps", "-d", wheels, package], check=True)
        wheel = glob.glob(os.path.join(wheels, package.replace("-", "_") + "*.whl"))[0]
        file = os.path.join(folder, inside)
        with zipfile.ZipFile(wheel) as archive, open(file, "wb") as out:
            out.write(archive.read(next(entry for entry in archive.namelist() if entry.endswith(inside))))
        row = Row(folder, name, np.random.default_rng(1).standard_normal(shape).astype(np.float32))
        yield [name, package, "Paddle" if "OCR" in name else "TensorFlow", *whole_row(row, file, operator_count(file))]


def module_rows(folder, names):
    """Lists modules of torch.nn that are rejected, or whose imported outputs differ by more than 1e-5."""
    tried = 0
    for name in names:
        model, x = import_modules.made(name)
        row = Row(folder, name, x.numpy())
        for exporter in EXPORTERS:
            file = row.path(f"_{exporter}.onnx")
            try:
                export(model, x, file, exporter)
            except Exception as error:  # exporters raise any type of error
                print(f"{name}, {exporter}: not exported: {str(error).splitlines()[0][:90]}", flush=True)
                continue
            tried += 1
            difference, why = row.imported(file)
            if difference is None or " " in difference or float(difference) > 1e-5:
                yield [name, "torch.nn", exporter, *cells(difference, why, operator_count(file), None)]
    print(f"{tried} files of {len(names)} modules were tried", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("networks", nargs="*", default=[])
    parser.add_argument("--out")
    parser.add_argument("--modules", action="store_true")
    parser.add_argument("--transformers", action="store_true")
    given = parser.parse_intermixed_args()
    lines = ["| network | from | exporter | operators | largest difference | INT8 PTQ | QAT | exported | codes that differ |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    if given.transformers:
        lines = ["| network | class | weights | largest difference | INT8 QAT | codes that differ |", "| --- | --- | --- | --- | --- | --- |"]
        sources = [import_transformers.rows(given.folder, command)]
    elif given.modules:
        sources = [module_rows(given.folder, given.networks or import_modules.MODULES)]
    else:
        known = [NETWORKS, light_files(), WHEELS]
        unknown = [name for name in given.networks if not any(name in names for names in known)]
        if unknown:
            sys.exit(f"import_table: there is no network {', '.join(unknown)}: use {', '.join(sum(map(list, known), []))}")
        wanted = [[name for name in names if name in given.networks or not given.networks] for names in known]
        sources = [rows(given.folder, names) for rows, names in zip((torch_rows, light_rows, wheel_rows), wanted)]
    for source in sources:
        for row in source:
            lines.append("| " + " | ".join(cell.replace("|", "/") for cell in row) + " |")
            print(lines[-1], flush=True)
    if given.out:
        with open(given.out, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
