"""The benchmark of servers, on one that answers by rule: of processes, windows and texts alone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.repo.tree import ROOT

SERVER = """\
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/v1/completions" and asked["temperature"] == 0
        words = [f"{asked['prompt']}{n} " for n in range(asked["max_tokens"])]
        if asked.get("stream"):
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            for word in words:
                time.sleep(0.02)
                made = json.dumps({"choices": [{"text": word}]})
                self.wfile.write(f"data: {made}\\n\\n".encode())
                self.wfile.flush()
            usage = {"choices": [], "usage": {"completion_tokens": len(words)}}
            self.wfile.write(f"data: {json.dumps(usage)}\\n\\n".encode())
            self.wfile.write(b"data: [DONE]\\n\\n")
            return
        time.sleep(0.05)
        usage = {"completion_tokens": len(words)}
        answer = {"choices": [{"text": "".join(words)}], "usage": usage}
        made = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(made)))
        self.end_headers()
        self.wfile.write(made)
    def log_message(self, *words): pass
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_both_servers_are_asked_in_turn_and_their_texts_compared(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    few = ["--rounds", "1", "--prompts", "4", "--tokens", "3", "--at-once", "2", "--windows", "1"]
    times = ["--window", "0.5", "--behind", "2.5", "--folder", str(tmp_path / "made")]
    command = [sys.executable, str(tmp_path / "server.py"), "{port}"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.served", *few, *times, "--", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("4 of 4 equal, plain and plain again 4 of 4") == 3, done.stdout
    window = r"^window 1: [\d.]+ of the \d+ tokens/s before and behind it, its end [\d.]+; longest"
    assert re.search(window, done.stdout, re.MULTILINE), done.stdout
    median = r"^(tokens|steps)/s.*: [\d.]+ \([\d.]+ to [\d.]+\)$"
    assert len(re.findall(median, done.stdout, re.MULTILINE)) == 3, done.stdout
    same = re.search(r"^(\d+) of (\d+) streams equal", done.stdout, re.MULTILINE)
    assert same and same[1] == same[2], done.stdout
    ends = r"^exit codes by SIGTERM, of the plain one first: -15 after [\d.]+ s, -15 after [\d.]+"
    assert re.search(ends, done.stdout, re.MULTILINE), done.stdout
