"""docs/site.toml: the documents of the site, in the groups and the order of its navigation."""

import collections
import dataclasses
import tomllib

PLAN = "docs/site.toml"


@dataclasses.dataclass
class Group:
    title: str
    documents: list  # Paths below the project's folder.
    is_folded: bool  # The navigation shows the title alone, except on pages of the group.


def read(root):
    groups = tomllib.loads((root / PLAN).read_text())["group"]
    return [Group(group["title"], group["documents"], group.get("folded", False)) for group in groups]


def findings(root, groups):
    """Yields what is wrong: each document in docs/ is listed once, and what is listed exists."""
    listed = collections.Counter(name for group in groups for name in group.documents)
    there = {path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md")}
    for name in sorted(there - set(listed)):
        yield f"{PLAN}: does not list {name}"
    for name, count in listed.items():
        if count > 1:
            yield f"{PLAN}: lists {name} {count} times"
        if not (root / name).is_file():
            yield f"{PLAN}: there is no {name}"
