#!/usr/bin/env python3
"""libcordma-c.so exports what cordma.h declares and nothing else, and the header is C: `c_symbols_test.py LIBRARY
HEADER MAP`.
"""

import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import cases  # noqa: E402


def exported(library):
    said = subprocess.run(["nm", "-D", "--defined-only", library], text=True, check=True,
                          stdout=subprocess.PIPE).stdout
    return sorted(line.split()[2].partition("@")[0] for line in said.splitlines())


def declared(header):
    return sorted(re.findall(r"^CORDMA_API [^;(]*?(\w+)\(", header, re.MULTILINE))


def main():
    library, header, listing = sys.argv[1], *(pathlib.Path(path).read_text() for path in sys.argv[2:4])
    run = cases.Cases("c symbols")
    with run.case("declarations are found over several lines"):
        found = declared("CORDMA_API int f(int a,\n  int b);\nCORDMA_API const char* g(void);\nint h(void);\n")
        assert found == ["f", "g"], found
    with run.case("the C library exports what its header declares"):
        assert exported(library) == declared(header), set(exported(library)) ^ set(declared(header))
    with run.case("the map lists what the header declares"):
        listed = re.findall(r"^ +(\w+);$", listing, re.MULTILINE)
        assert listed == declared(header), set(listed) ^ set(declared(header))
    with run.case("the header includes C's headers alone"):
        assert re.findall(r"#include (\S+)", header) == ["<stddef.h>", "<stdint.h>"]
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
