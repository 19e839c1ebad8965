#!/usr/bin/env python3
"""What a release has: `release_test.py ROOT`."""

import hashlib
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import cases  # noqa: E402

CHANGELOG = """# Changelog

## Unreleased

### Features
- What comes later.

## 1.2.3 - 2024-12-31

### Features
- What is new.

## 1.2.2 - 2024-12-30

### Features
- What is old.
"""


class Checkout:
    """A small tree with the script in it, at its first commit."""

    def __init__(self, script, folder):
        if shutil.which("git") is None:
            raise unittest.SkipTest("there is no git")
        self.root = pathlib.Path(folder)
        (self.root / "packaging").mkdir()
        shutil.copy(script, self.root / "packaging")
        (self.root / ".gitignore").write_text("/build/\n")
        (self.root / "meson.build").write_text("project('cordma', 'cpp',\n  version: '1.2.3')\n")
        (self.root / "CHANGELOG.md").write_text(CHANGELOG)
        self.git("init", "--quiet")
        self.commit()

    def git(self, *arguments):
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgSign=false")
        subprocess.run(["git", *who, *arguments], cwd=self.root, check=True)

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "x")

    def release(self, *arguments):
        return subprocess.run([self.root / "packaging/release", *arguments], text=True, capture_output=True)


def main():
    script = pathlib.Path(sys.argv[1]) / "packaging/release"
    all_cases = cases.Cases("release")

    with all_cases.case("a release has an archive, its sum and the notes"), tempfile.TemporaryDirectory() as folder:
        tree = Checkout(script, folder)
        made = tree.release()
        assert made.returncode == 0, made.stderr
        archive, checksum, notes = map(pathlib.Path, made.stdout.split())
        with tarfile.open(archive) as files:
            assert "cordma-1.2.3/CHANGELOG.md" in files.getnames(), files.getnames()
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        assert checksum.read_text() == f"{digest}  cordma-1.2.3.tar.gz\n", checksum.read_text()
        assert notes.read_text() == "# cordma 1.2.3 - 2024-12-31\n\n### Features\n- What is new.\n", notes.read_text()
        assert tree.release("notes").stdout == notes.read_text()
        before = archive.read_bytes()
        tree.release()
        assert archive.read_bytes() == before, "the same commit makes another archive"

    with all_cases.case("a release needs its version in the changelog"), tempfile.TemporaryDirectory() as folder:
        tree = Checkout(script, folder)
        (tree.root / "meson.build").write_text("project('cordma', 'cpp',\n  version: '1.3.0')\n")
        tree.commit()
        made = tree.release()
        assert made.returncode == 1 and not (tree.root / "build").exists()
        assert "no '## 1.3.0 - DATE', but Unreleased, 1.2.3 - 2024-12-31, 1.2.2" in made.stderr, made.stderr

    with all_cases.case("a release has what is committed"), tempfile.TemporaryDirectory() as folder:
        tree = Checkout(script, folder)
        (tree.root / "forgotten.txt").write_text("x\n")
        made = tree.release()
        assert made.returncode == 1 and "not committed" in made.stderr, made.stderr
        assert "forgotten.txt" in made.stderr, made.stderr

    with all_cases.case("the command line of a release is checked"), tempfile.TemporaryDirectory() as folder:
        made = Checkout(script, folder).release("1.2.3")
        assert made.returncode == 1 and "no argument, or notes" in made.stderr, made.stderr
    return all_cases.status()


if __name__ == "__main__":
    sys.exit(main())
