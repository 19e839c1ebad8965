"""Prints a source with a fault put into it: mutate.py FILE OLD NEW [OLD NEW]..."""

import sys


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as source:
        text = source.read()
    edits = sys.argv[2:]
    for old, new in zip(edits[::2], edits[1::2]):
        if old not in text:
            sys.exit(f"{sys.argv[1]} has no '{old}': the fault to put in has to be written anew")
        text = text.replace(old, new)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
