"""cpp_snippets.py write SOURCE FILE..: the C++ of documents as one source: fragments in functions, and the one program.
cpp_snippets.py write-whole SOURCE FILE: the C++ of one document, which is a program in pieces.
cpp_snippets.py check PROGRAM FILE..: the output of a program equals the comments next to its output statements."""
import pathlib
import re
import subprocess
import sys

# Variables that fragments use.
PARAMETERS = ("fq::Module& model, const std::shared_ptr<const fq::Dataset>& data, const fq::Tensor& x, const fq::Tensor& amax, "
              "const fq::Tensor& scale, const fq::Tensor& zero")


def snippets(files):
    for file in files:
        yield from re.findall(r"^```cpp\n(.*?)^```", pathlib.Path(file).read_text(), re.M | re.S)


def source(files):
    fragments, programs = [], []
    for snippet in snippets(files):
        (programs if "int main(" in snippet else fragments).append(snippet)
    assert len(programs) == 1 and fragments, (len(programs), len(fragments))
    functions = [f"void fragment_{i}({PARAMETERS}) {{\n{fragment}}}\n" for i, fragment in enumerate(fragments)]
    return programs[0] + "\n" + "\n".join(functions)


def check(program, files):
    message = [comment.strip() for snippet in snippets(files) if "int main(" in snippet
            for comment in re.findall(r"std::cout.*;\s*//(.*)$", snippet, re.M)]
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    assert message and printed == message, f"printed {printed}, the document says {message}"


if sys.argv[1] == "write":
    pathlib.Path(sys.argv[2]).write_text(source(sys.argv[3:]))
elif sys.argv[1] == "write-whole":
    pathlib.Path(sys.argv[2]).write_text("\n".join(snippets(sys.argv[3:])))
else:
    check(sys.argv[2], sys.argv[3:])
