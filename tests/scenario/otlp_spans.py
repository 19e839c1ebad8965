#!/usr/bin/env python3
"""The spans that examples/17_tracing.cpp writes are OTLP's, and link up: `otlp_spans.py FILE`."""

import json
import re
import sys

SERVER, CLIENT, INTERNAL = 2, 3, 1
ERROR = 2
# Each span, its service and kind, beside those of the span that it is below.
CALLS = {
    ("errand", "customer", INTERNAL): None,
    ("shop.buy", "customer", CLIENT): ("errand", "customer", INTERNAL),
    ("shop.buy", "shop", SERVER): ("shop.buy", "customer", CLIENT),
    ("stock.take", "shop", CLIENT): ("shop.buy", "shop", SERVER),
    ("stock.take", "stock", SERVER): ("stock.take", "shop", CLIENT),
}


def value_of(value):
    assert len(value) == 1 and set(value) <= {"stringValue", "intValue"}, value
    return value["stringValue"] if "stringValue" in value else int(value["intValue"])


def attributes_of(owner):
    """An object's attributes, of which none is there twice."""
    found = {a["key"]: value_of(a["value"]) for a in owner["attributes"]}
    assert len(found) == len(owner["attributes"]), owner
    return found


def spans_of(lines):
    """(service, span) of each line, which is an ExportTraceServiceRequest with one span."""
    for line in lines:
        (resource_spans,) = json.loads(line)["resourceSpans"]
        (scope_spans,) = resource_spans["scopeSpans"]
        assert scope_spans["scope"]["name"] == "cordma", line
        (span,) = scope_spans["spans"]
        yield attributes_of(resource_spans["resource"])["service.name"], span


def check_form(span):
    assert re.fullmatch("[0-9a-f]{32}", span["traceId"]) and set(span["traceId"]) != {"0"}, span
    assert re.fullmatch("[0-9a-f]{16}", span["spanId"]) and set(span["spanId"]) != {"0"}, span
    assert span["flags"] == 1 and span["name"], span
    # OTLP has numbers of 64 bits as strings.
    start, end = span["startTimeUnixNano"], span["endTimeUnixNano"]
    assert isinstance(start, str) and isinstance(end, str), span
    assert 1_600_000_000_000_000_000 < int(start) <= int(end), span
    if span["kind"] != INTERNAL:
        attributes = attributes_of(span)
        assert attributes["rpc.system"] == "cordma" and attributes["rpc.method"] == span["name"], span
        assert re.fullmatch("[0-9.]+|[0-9a-f:]+", attributes["network.peer.address"]), span
        assert 0 < attributes["network.peer.port"] < 65536, span


def check_links(spans):
    """Each span is below the one that CALLS says, begins after that, and ends before."""
    by_id = {span["spanId"]: (service, span) for service, span in spans}
    assert len(by_id) == len(spans), "two spans have one id"
    assert len({span["traceId"] for _, span in spans}) == 1, "one order, several traces"
    for service, span in spans:
        above = CALLS[span["name"], service, span["kind"]]
        if above is None:
            assert "parentSpanId" not in span, span
            continue
        parent_service, parent = by_id[span["parentSpanId"]]
        assert (parent["name"], parent_service, parent["kind"]) == above, (span, parent)
        # Each service relates the executor's clock to the calendar's at a moment of its own.
        slack = 0 if service == parent_service else 50_000_000
        assert int(span["startTimeUnixNano"]) >= int(parent["startTimeUnixNano"]) - slack, (span, parent)
        assert int(span["endTimeUnixNano"]) <= int(parent["endTimeUnixNano"]) + slack, (span, parent)


def check_outcomes(spans):
    """Of two orders one succeeds; the other fails from the stock up to the customer, with the reason."""
    for name, service, kind in CALLS:
        found = [span for s, span in spans if (span["name"], s, span["kind"]) == (name, service, kind)]
        if kind == INTERNAL:
            assert [span["status"] for span in found] == [{}], found
            continue
        assert len(found) == 2, (name, service, found)
        good, bad = sorted(found, key=lambda span: int(span["startTimeUnixNano"]))
        assert good["status"] == {} and "error.type" not in attributes_of(good), good
        assert bad["status"]["code"] == ERROR and "there is no such item" in bad["status"]["message"], bad
        assert attributes_of(bad)["error.type"], bad


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        spans = list(spans_of(file))
    for _, span in spans:
        check_form(span)
    check_links(spans)
    check_outcomes(spans)
    print(f"{len(spans)} spans link up")


if __name__ == "__main__":
    main()
