"""Finds comments that do not stand alone, and sentences in comments that are too long."""

import re

SENTENCE_WORDS_MAX = 25
# A comment that begins so is a fragment, or speaks of something that another comment names.
FIRST_WORDS = re.compile(
    r"(it|its|itself|he|she|his|her|they|them|their|we|our|those|none|nobody|nothing|somebody|something"
    r"|everybody|everything|anybody|anything|whoever|whatever|both|others|what|who|whom|whose|which"
    r"|so|as|of|by|says|the (?:same|others|latter)|(?:each|one|all) of"
    r"|(?:this|that|these) (?:is|are|was|of|follows?))\b(?![-'(:.]\S)", re.IGNORECASE)
STRING = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)'")
CPP_MARK = re.compile(r"//[/!]?<?")
SCRIPT_MARK = re.compile(r"(?<!\S)#+(?!!)")
# Lines that are no sentences: of code, a list or a table, or with columns of their own.
LAID_OUT = re.compile(r"\s*(\||[-*] |\d+\. |\S.*\S {2,}\S)|\s{2,}\S")
VERBATIM = re.compile(r"[\\@](verbatim|code|dot)\b")
END_VERBATIM = re.compile(r"[\\@]end(verbatim|code|dot)\b")
# A sentence ends behind its stop, before an empty line, and before a tag.
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')]?(?:\s+|$)|\n\s*\n|(?=\\(?:errors|thread|cost|return|param|pre)\b)")
TAG = re.compile(r"\\\w+")


def blocks(lines, mark):
    """Yields (line number, text lines) of each comment; one behind code may go on below itself."""
    block, column = None, None
    for number, line in enumerate(lines, 1):
        match = mark.search(STRING.sub(lambda text: "x" * len(text[0]), line))
        is_behind_code = match and line[:match.start()].strip()
        # A script's strings are too many kinds to tell them from comments behind code.
        if mark is SCRIPT_MARK and is_behind_code:
            match = None
        if block and (not match or is_behind_code or match.start() != column):
            yield block
            block = None
        if match:
            column = match.start()
            block = block or (number, [])
            block[1].append(line[match.end():])
    if block:
        yield block


def sentences(number, lines):
    """Yields (line number, sentence) of a comment, without what is laid out in it."""
    text, is_verbatim = [], False
    for line in lines:
        is_verbatim = (is_verbatim or VERBATIM.search(line)) and not END_VERBATIM.search(line)
        is_left_out = is_verbatim or END_VERBATIM.search(line) or LAID_OUT.match(line[1:])
        text.append("" if is_left_out else line)
    text, begin = "\n".join(text), 0
    for end in [*(match.end() for match in SENTENCE_END.finditer(text)), len(text)]:
        if sentence := text[begin:end].split():
            before = text[begin:end].index(sentence[0])
            yield number + text.count("\n", 0, begin + before), " ".join(sentence)
        begin = end


def findings(lines, is_script=False):
    """Yields (line number, what is wrong)."""
    for number, text in blocks(lines, SCRIPT_MARK if is_script else CPP_MARK):
        first = FIRST_WORDS.match(" ".join(text).lstrip())
        if first and not LAID_OUT.match(text[0][1:]):
            yield number, f"a comment begins with '{first[1]}': name what it speaks of"
        for at, sentence in sentences(number, text):
            count = len(re.findall(r"\S*\w\S*", TAG.sub("", sentence)))
            if count > SENTENCE_WORDS_MAX:
                yield at, f"a sentence of {count} words, the limit is {SENTENCE_WORDS_MAX}"
