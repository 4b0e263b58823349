"""examples.py SOURCE_DIR HEADERS_FILE OUTPUT: the examples in the comments of headers, as one source that compiles when
they are right. An example is a block of lines behind `///     ` with a semicolon; others are formulas and JSON. Each is a
function of its own, whose errors point at the header."""
import pathlib
import re
import sys

# Variables that examples use.
PARAMETERS = """Module& model, Network& network, const std::shared_ptr<Module>& float_network, DataLoader& loader, DataLoader& test, DataLoader& validation, DataLoader& first_half,
    const std::shared_ptr<const Dataset>& data, const std::vector<Tensor>& batches, const Batch& batch,
    const std::vector<std::pair<Tensor, Tensor>>& samples, const Tensor& x, const Tensor& y, const Tensor& w, const Tensor& bias,
    const Tensor& gamma, const Tensor& beta, const Tensor& amax, const Tensor& scale, const Tensor& zero,
    const Tensor& weight, const Tensor& weights, const Tensor& images, const Tensor& labels, const Tensor& target,
    const Variable& branch, const Variable& row, Trainer& trainer, Optimizer& optimizer, Plateau& plateau, TensorQuantizer& quantizer,
    const QuantConfig& config, const Loss& loss, std::uint64_t seed, std::int64_t step, std::int64_t total"""
PRELUDE = """#include <iostream>
#include <nlohmann/json.hpp>

#include "fakequant/fakequant.h"

namespace fq::examples {

bool train_step();
void train_batch(const Batch& batch);
void use(const Tensor& x, const Tensor& y);
"""
LINE = re.compile(r"^\s*///     (.*)$")
FUNCTION = re.compile(r"^(?!for|if|while|do|try|else)[\w:<>&*]+ \w+\(.*\) \{")


def blocks(text):
    """The first line's number and the lines of each block; an empty line may stand between lines of one."""
    lines, begin = [], 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if found := LINE.match(line):
            begin = begin if lines else number
            lines.append(found[1])
        elif lines and line.strip() == "///" and lines[-1]:
            lines.append("")
        elif lines:
            yield begin, lines
            lines = []


def source(root, headers):
    parts, count = [PRELUDE], 0
    for header in headers:
        for begin, lines in blocks((root / header).read_text()):
            if not any(";" in line for line in lines):
                continue
            count += 1
            code = f'#line {begin} "{root / header}"\n' + "\n".join(lines) + "\n"
            first = next(line for line in lines if not line.startswith("//"))
            if FUNCTION.match(first):
                parts.append(f"namespace example_{count} {{\n{code}}}\n")
            else:
                parts.append(f"void example_{count}({PARAMETERS}) {{\n{{\n{code}}}\n}}\n")
    assert count > 60, count
    return "\n".join([*parts, "}  // namespace fq::examples\n"])


root, list_file, output = map(pathlib.Path, sys.argv[1:])
output.write_text(source(root, list_file.read_text().split()))
