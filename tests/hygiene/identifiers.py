"""Words that say nothing to a verbs programmer, and may be no part of a name in the code."""

import re

# Each with the terms to choose from; docs/glossary.md defines them.
TERMS = {
    "alone": "single, only",
    "bury": "close, destroy",
    "buried": "closed, destroyed",
    "door": "listener, acceptor, endpoint",
    "doors": "listeners, acceptors, endpoints",
    "home": "executor, scheduler, owner",
    "its": "what the value is",
    "life": "epoch, generation",
    "look": "poll, read, inspect",
    "looked": "polled, read, inspected",
    "looks": "polls, reads, inspects",
    "office": "what the value is",
    "place": "slot, permit, index, address",
    "places": "slots, permits, indices, addresses",
    "thing": "what the value is",
    "things": "what the values are",
    "turn": "event-loop iteration, round",
    "turns": "event-loop iterations, rounds",
    "way": "route, link, method, kind",
    "ways": "routes, links, methods, kinds",
    "who": "owner, peer, waiter, client",
    "whom": "owner, peer, waiter, client",
    "whose": "owner, peer, waiter, client",
    "wish": "request, options, terms",
}

# Names that have such a word for a reason.
NAMES_OF_OTHERS = (
    r"in_place\w*|MPI_IN_PLACE",  # The standard library's, and MPI's.
    r"(packet_)?life_time\w*",  # IBTA 13.2.2, PacketLifeTime.
    r"(one|both)_ways?(_\w+)?",  # Usual for directions.
    r"way_out(_\w+)?",  # Each error names the way out.
)
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
EXCEPTED = re.compile("|".join(NAMES_OF_OTHERS))
# Raw strings, strings, characters and comments hold prose.
PROSE = re.compile(r"""'(?:\\.|[^'\\\n])'|""" r'R"\w*\((?:.|\n)*?\)\w*"|"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*(?:.|\n)*?\*/')


def findings(lines):
    """(line number, finding) of each name with one of these words."""
    code = PROSE.sub(lambda prose: "\n" * prose[0].count("\n"), "\n".join(lines))
    for number, line in enumerate(code.split("\n"), 1):
        for name in IDENTIFIER.findall(line):
            for word in name.lower().split("_"):
                if word in TERMS and not EXCEPTED.fullmatch(name):
                    yield number, f"'{word}' in the name {name}: {TERMS[word]}"
