"""docs_site.py SOURCE FOLDER [STUBS]: prepares the MkDocs sources of the site in FOLDER: docs/, the README as first page, and pages
of the Python API from docstrings and from STUBS (a .pyi file of the compiled module). Links to files outside of docs/ become text."""
import ast
import pathlib
import re
import shutil
import sys

NAVIGATION = [
    ("Home", ["README.md"]),
    ("Guides", ["installing.md", "start.md", "data.md", "concepts.md", "python.md", "coming_from.md", "import.md", "models.md", "low_bits.md",
                "deploy.md", "runs.md", "ranks.md", "cuda.md", "cpp.md", "errors.md", "security.md"]),
    ("Reference", ["command-line.md", "api/fakequant.md", "api/fakequant.torch.md", "numerics.md", "formats.md"]),
    ("Benchmarks", None),
    ("Project", ["developing.md", "CONTRIBUTING.md", "CHANGELOG.md"]),
]


def title(page):
    heading = re.search(r"^# (.+)", page.read_text(), re.M)
    return heading[1].strip() if heading else page.stem


def signature(node):
    return f"{node.name}({ast.unparse(node.args)})" if isinstance(node, ast.FunctionDef) else node.name


def documented(body, level=2):
    """Markdown of the public classes and functions of a module."""
    for node in body:
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef)) or node.name.startswith("_"):
            continue
        text = ast.get_docstring(node)
        if text or isinstance(node, ast.ClassDef):
            yield f"{'#' * level} `{signature(node)}`\n\n{text or ''}\n"
        if isinstance(node, ast.ClassDef):
            yield from documented(node.body, level + 1)


def exported(folder):
    """Markdown of the functions and classes in `__all__` of a package."""
    names = ast.literal_eval(re.search(r"__all__ = (\[.*?\])", (folder / "__init__.py").read_text(), re.S)[1])
    found = {node.name: node for path in sorted(folder.glob("*.py")) for node in ast.parse(path.read_text()).body
             if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    return documented([found[name] for name in names if name in found])


def main(source, folder, stubs=None):
    source, folder = pathlib.Path(source), pathlib.Path(folder)
    pages = folder / "pages"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source / "docs", pages)
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(source / name, pages)
    (pages / "index.md").unlink()
    (pages / "api").mkdir()
    native = documented(ast.parse(pathlib.Path(stubs).read_text()).body) if stubs else ["Build the module for its API.\n"]
    (pages / "api" / "fakequant.md").write_text("# Python API: fakequant\n\n" + "\n".join(native))
    (pages / "api" / "fakequant.torch.md").write_text(
        "# Python API: fakequant.torch\n\n" + "\n".join(exported(source / "python" / "fakequant" / "torch")))
    for page in pages.rglob("*.md"):
        up = "../" * (len(page.relative_to(pages).parts) - 1)

        def link(found, page=page, up=up):
            text, target = found[1], found[2]
            path, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", target) or not path:
                return found[0]
            for inside in (path, re.sub(r"^(\.\./)*(docs/)?", up, path)):
                if (page.parent / inside).exists():
                    return f"[{text}]({inside}{'#' + anchor if anchor else ''})"
            return text

        page.write_text(re.sub(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", link, page.read_text()).replace("](docs/", "]("))
    navigation = ["site_name: fakequant", "docs_dir: pages", "site_dir: site", "theme: readthedocs", "strict: true", "nav:"]
    for section, names in NAVIGATION:
        names = names or ["benchmarks/README.md", *sorted(f"benchmarks/{p.name}" for p in (pages / "benchmarks").glob("*.md")
                                                          if p.name != "README.md")]
        navigation.append(f"  - {section}:")
        navigation += [f"    - '{title(pages / name)}': {name}" for name in names]
    (folder / "mkdocs.yml").write_text("\n".join(navigation) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
