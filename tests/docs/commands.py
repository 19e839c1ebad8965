"""Commands of the project's programs in the documents, beside the options that their sources give each mode.

A mode of cordma-perf is a subcommand, which `--local` and `--collectives` name, too. Other programs have one.
"""

import pathlib
import re

TOOLS = ("cordma-perf", "cordma-doctor", "cordma-top")
RUN = "softverbs-run"
FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")
FUNCTION = re.compile(r"^(?:\w+ )?([\w:]+)\((?:CLI::App& (\w+)|int argc)", re.MULTILINE)
ADDED = r'(?:->|\.)add_(?:option|flag|flag_callback)\(\s*"(--[\w-]+)"'
SUBCOMMAND = re.compile(r'(?:App\* const (\w+) = |command_\{)app\.add_subcommand\(\s*"(\w+)"')
SETTING = re.compile(r'^    \{"(--[\w-]+)", (nullptr|")', re.MULTILINE)
HELP = {"--help", "-h"}


def inline(text):
    """The code within the sentences of a document, each piece on one line."""
    return [" ".join(code.split()) for code in INLINE.findall(FENCED.sub("", text))]


def source_of(root, tool):
    folder = root / "tools" / tool.partition("-")[2]
    return "\n".join(path.read_text() for kind in ("options", "arguments") for path in sorted(folder.glob(f"*{kind}.cpp")))


def functions(source):
    """{name: text} of the functions that add options."""
    found = {}
    for text in re.split(r"^\}", source, flags=re.MULTILINE):
        if head := FUNCTION.search(text):
            found[head[1]] = text[head.start():]
    return found


def added(all_functions, text, variable):
    """The options that a function adds to a variable, by itself and by the functions that it calls."""
    options = set(re.findall(rf"\b{variable}{ADDED}", text))
    for owner, called in re.findall(rf"(?:\b(\w+)\.)?\b(add_\w+)\(\*?{variable}\b", text):
        if owner:
            called = re.search(rf"^ *(\w+) [\w, ]*\b{owner}\b[\w, ]*;", text, re.MULTILINE)[1] + "::" + called
        options |= added(all_functions, all_functions[called], "to")
    return options


def modes(source):
    """{mode: options} of a program that reads its options by CLI11."""
    all_functions, found = functions(source), {}
    for text in all_functions.values():
        for variable, mode in SUBCOMMAND.findall(text):
            found[mode] = added(all_functions, text, variable or "to")
    found = found or {"": added(all_functions, all_functions["parse_options"], "app")}
    lost = set(re.findall(ADDED, source)) - set().union(*found.values())
    assert not lost, f"options of no mode: {lost}"
    return found


def run_options(root):
    """{option: whether a value follows} of softverbs-run."""
    folder = root / "subprojects/softverbs/src/run"
    options = {option: value != "nullptr" for option, value in SETTING.findall((folder / "settings.cpp").read_text())}
    flags = re.findall(r'word == "(--\w+)"', (folder / "main.cpp").read_text())
    return options | dict.fromkeys(flags, False)


def unknown_of_run(root, words):
    """Options of softverbs-run that there are not; those behind the program are the program's."""
    options, words = run_options(root), iter(words)
    for word in words:
        name, equals, _ = word.partition("=")
        if not name.startswith("-"):
            return
        if name not in options:
            yield f"{RUN} {name}"
        elif options[name] and not equals:
            next(words, None)


def unknown_of_tool(root, tool, words):
    """Options that the command's mode has not, or that want another one beside them."""
    source = source_of(root, tool)
    all_modes = modes(source)
    given = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    mode = ""
    if "" not in all_modes:
        named = [name for name in all_modes if f"--{name}" in given and f'"--{name}"' in source] or words[:1]
        mode = named[0] if named and named[0] in all_modes else ""
        if not mode and set(given) - HELP:
            yield f"{tool} without a mode"
            return
    for option in given:
        needed = re.search(rf'"{option}", [^"]*"With (--[\w-]+)', source)
        if needed and needed[1] not in given:
            yield f"{tool} {option} without {needed[1]}"
        elif option not in HELP | {f"--{mode}"} | all_modes.get(mode, set()):
            yield " ".join([tool, mode, option]).replace("  ", " ")


def unknown_options(root, text):
    """Options in the commands of a text that the program has not in that mode."""
    text = re.sub(r"(?:^|(?<=\s))#[^\n]*", "", text.replace("\\\n", " "))
    for command in re.split(r"[\n|;&]+", text):
        words = re.findall(r"[^\s\[\]()<>]+", command)
        programs = [i for i, word in enumerate(words) if pathlib.PurePath(word).name in (*TOOLS, RUN)]
        for first, behind in zip(programs, [*programs[1:], len(words)]):
            tool, rest = pathlib.PurePath(words[first]).name, words[first + 1:behind]
            yield from unknown_of_run(root, rest) if tool == RUN else unknown_of_tool(root, tool, rest)
