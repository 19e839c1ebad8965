#!/usr/bin/env python3
"""A page that example 18 serves is Prometheus' format, and the dashboard asks for what is in it.

    prometheus_test.py ROOT PROGRAM     PROGRAM: the example, which has a device

promtool (Debian: prometheus) checks the page, and parses the dashboard's queries. Without it these two cases are
left out.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import cases  # noqa: E402

METRIC = re.compile(r"\bcordma_\w+")
FAMILY = re.compile(r"^# TYPE (\w+) \w+$", re.MULTILINE)
# Grafana replaces them before it asks.
VARIABLES = {"$__rate_interval": "1m", "$device": ".*", "$job": ".*"}
PANELS_MIN = 20


def served(program):
    """The page, over a Unix socket of a name that no other process has."""
    name = f"cordma-prometheus-test-{os.getpid()}"
    with subprocess.Popen([program, f"unix:@{name}"], text=True, stdout=subprocess.PIPE) as running:
        try:
            line = running.stdout.readline()
            assert line == f"metrics at unix:@{name}\n", line
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(f"\0{name}")
                client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                answer = b"".join(iter(lambda: client.recv(65536), b"")).decode()
        finally:
            running.send_signal(signal.SIGTERM)
        assert running.wait() == 0, running.returncode
    head, _, body = answer.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\n"), head
    return body


def queries(dashboard):
    """(title, PromQL) of each query, with values for Grafana's variables."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            text = target["expr"]
            for variable, value in VARIABLES.items():
                text = text.replace(variable, value)
            yield panel["title"], text


def unknown(texts, page):
    """Names of metrics that the page does not have."""
    families = set(FAMILY.findall(page))
    return sorted({name for text in texts for name in METRIC.findall(text)} - families)


def promtool(arguments, text):
    done = subprocess.run(["promtool", *arguments], input=text, text=True, capture_output=True, check=False)
    return done.returncode, done.stdout + done.stderr


def rules(texts):
    """A file of rules for Prometheus, as JSON, which is YAML."""
    return json.dumps({"groups": [{"name": "dashboard", "rules": [
        {"record": f"query:{number}", "expr": text} for number, text in enumerate(texts)]}]})


def check_by_promtool(run, page, texts):
    with run.case("promtool finds nothing to say of the page"):
        assert promtool(["check", "metrics"], page) == (0, "")
        status, said = promtool(["check", "metrics"], "# TYPE cordma_x counter\ncordma_x 1\n")
        assert status != 0 and "_total" in said, said
    with run.case("promtool parses each query of the dashboard"):
        status, said = promtool(["check", "rules", "/dev/stdin"], rules(texts))
        assert status == 0 and f"{len(texts)} rules found" in said, said
        assert promtool(["check", "rules", "/dev/stdin"], rules(["rate(cordma_x[1m]"]))[0] != 0


def main():
    root, program = pathlib.Path(sys.argv[1]), sys.argv[2]
    run = cases.Cases("prometheus")
    dashboard = json.loads((root / "packaging/grafana/cordma.json").read_text())
    texts = [text for _, text in queries(dashboard)]
    page = ""
    with run.case("example 18 serves its metrics"):
        page = served(program)
        assert re.search(r'^cordma_connections_open\{device="\w+"\} \d+$', page, re.MULTILINE), page
    with run.case("the dashboard asks for metrics that the page has"):
        assert unknown(["rate(cordma_no_such_total[1m])"], page) == ["cordma_no_such_total"]
        assert not unknown(texts, page), unknown(texts, page)
    with run.case("the dashboard's panels have queries, and places of their own"):
        panels = dashboard["panels"]
        shown = [panel for panel in panels if panel["type"] != "row"]
        assert len(shown) >= PANELS_MIN, len(shown)
        assert all(panel["targets"] for panel in shown)
        assert len({panel["id"] for panel in panels}) == len(panels)
        tiles = [(x, y) for panel in panels for at in [panel["gridPos"]]
                 for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]
        assert len(set(tiles)) == len(tiles), "panels overlap"
        assert not [text for text in texts if "$" in text], "a variable that nobody replaces"
    if shutil.which("promtool"):
        check_by_promtool(run, page, texts)
    else:
        print("promtool is missing (Debian: prometheus): the page and the queries are not checked by it")
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
