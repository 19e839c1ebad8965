"""`python3 tools/dev/site ROOT OUTPUT XML`, as `./dev docs` calls it. XML is what Doxygen made of the headers."""

import pathlib
import sys

sys.path[0] = str(pathlib.Path(__file__).absolute().parents[2])
from dev.site import site  # noqa: E402


def main():
    root, output, xml = (pathlib.Path(path) for path in sys.argv[1:])
    found = site.build(root, output, xml)
    print(*found, sep="\n", end="\n" if found else "")
    if not found:
        print(f"The site: {output / 'index.html'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
