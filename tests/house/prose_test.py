"""prose_test.py SOURCE_DIR: comments, docstrings, messages and documents are plain technical English (CONTRIBUTING.md).

Counts phrases that a reader has to decode, per 1,000 words and top-level folder. A folder above its budget fails. A hit is a place
to look at: rewrite the sentence so that it names its subject. Prints the worst lines of each folder that fails.
"""
import collections
import pathlib
import re
import subprocess
import sys

# Hits per 1,000 words. A clean-up lowers the budget to the value that it reached; the aim is 2.0 everywhere.
BUDGETS = {}
AIM = 2.0
SHOWN = 5  # worst lines per folder

SUFFIXES = {".h": "cpp", ".cpp": "cpp", ".cu": "cpp", ".cuh": "cpp", ".py": "py", ".cmake": "py", ".sh": "py", ".md": "md"}
NOUNS = "it|they|the|a|an|one|no|none|nothing|each|every|that|those|others?|you|we"
VERBS = "is|was|are|were|has|had|does|did|may|must|can|could|would|comes?|goes|stands?|follows?|reads?|writes?|makes?|keeps?|needs?|takes?|lies|fits"
RULES = {
    "name the thing instead of 'what ..'": rf"\bwhat (?:{NOUNS}|{VERBS}|[a-z]+ (?:is|was|has|are|were))\b",
    "repeat the noun": r"\b(?:those|that) (?:of|that|which|with|without|in|for|from|by)\b|\b(?:of|to|in|with|by|from) (?:which|what|whose|whom)\b",
    "begin with the subject or a verb": r"^\W*(?-i:Of|What|Those|That|The same|Its|Who|Which|Beside|Behind|Else|So that|Where|With it|The rest|None|Nothing)"
                                        r"\b(?!\w)(?!.*\b(?:returns?|throws?|must)\b)",
    "say who or which": r"\b(?:who|what|which|where|when)ever\b|\b(?:no|some)body\b|\bnone (?:of|is|are)\b|\bnothing (?:but|else)\b|\bno other than\b",
    "use the verb of the field": r"\b(?:tells?|told|anew|go(?:es|ne)? on|went on|mend(?:s|ed)?|knows? (?:of|by)|is known by|stands? (?:in|for|behind|beside|there|where)"
                                 r"|lies? (?:in|on|behind)|(?:is|are|was) taken|ta[kn]es? (?:off|out of)|gives? up|held (?:at|in|against)|asks? for|is asked)\b",
    "use before, after, with or except": r"\b(?:in front of|beside|behind (?:it|an?|the|each|which)|but (?:for|that|of|in)|save for|as such)\b(?! effects?\b)",
    "say how many, or 'unchanged'": r"\b(?:so many|as many|so much|such (?:a|an|as)|as (?:it|they) (?:is|are|was|stands)|as before|in place of|for want of|in the way)\b",
}
RULES = {advice: re.compile(pattern, re.I) for advice, pattern in RULES.items()}
COMMENT = {"cpp": re.compile(r"(?:///?<?!?|^\s*\*)\s?(.*)$"), "py": re.compile(r"#\s?(.*)$")}
STRING = re.compile(r'"((?:[^"\\]|\\.){25,})"')
DOCSTRING = re.compile(r'"""(.*?)"""', re.S)
DIRECTIVES = ("#include", "#define", "#if", "#e", "#pragma", "#!")


def document_lines(text):
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, re.sub(r"`[^`]*`|\[|\]\([^)]*\)", " x ", line)


def source_lines(text, kind):
    if kind == "py":
        for found in DOCSTRING.finditer(text):
            first = text.count("\n", 0, found.start()) + 1
            yield from ((first + i, line) for i, line in enumerate(found.group(1).split("\n")))
    for number, line in enumerate(text.split("\n"), 1):
        if re.search(r"https?://|NOLINT|clang-format|SPDX|Copyright|///     ", line):
            continue
        comment = COMMENT[kind].search(STRING.sub('""', line))
        if comment and len(comment.group(1).split()) > 2 and not line.lstrip().startswith(DIRECTIVES):
            yield number, re.sub(r"`[^`]*`", "x", comment.group(1))
        yield from ((number, words) for words in STRING.findall(line) if len(words.split()) > 4 and not words.startswith(("<", "{")))


def prose(path):
    """Yields (line number, text) of the prose in a file."""
    kind = SUFFIXES[path.suffix]
    text = path.read_text(errors="replace")
    return document_lines(text) if kind == "md" else source_lines(text, kind)


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, check=False)
    if listed.returncode != 0 or not listed.stdout:
        print("SKIPPED: the sources are no git checkout")
        return 77
    words, hits, worst = collections.Counter(), collections.Counter(), collections.defaultdict(list)
    for name in listed.stdout.decode().split("\0")[:-1]:
        path = root / name
        if path.suffix not in SUFFIXES or not path.is_file() or path == pathlib.Path(__file__).resolve():
            continue
        folder = name.split("/")[0] if "/" in name else "(root)"
        for number, text in prose(path):
            found = [advice for advice, rule in RULES.items() for _ in rule.findall(text)]
            words[folder] += len(text.split())
            hits[folder] += len(found)
            if found:
                worst[folder].append((len(found), f"{name}:{number}: {text.strip()[:110]}  [{found[0]}]"))
    failed = False
    for folder in sorted(words):
        rate, budget = 1000 * hits[folder] / words[folder], BUDGETS.get(folder, AIM)
        over = rate > budget
        failed |= over
        print(f"{folder:12} {rate:6.2f} of {budget:.1f} per 1,000 of {words[folder]} words{'  EXCEEDED' if over else ''}")
        for _, line in sorted(worst[folder], reverse=True)[:SHOWN if over else 0]:
            print(f"    {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
