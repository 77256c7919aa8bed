"""Sending in the background, against a real server on this machine that answers as the tests say."""

import gzip
import http.server
import json
import os
import socket
import threading
import time
import unittest

from support import ProbeTest, records


class Server:
    """Keeps every batch it was sent; `answer(number, batch)` gives (status, body), or sleeps before it does."""

    def __init__(self, answer=None, port=0):
        outer = self
        self.answer = answer or (lambda number, batch: (200, b"{}"))
        self.requests = []
        self.lock = threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                lines = [json.loads(line) for line in gzip.decompress(body).splitlines()]
                with outer.lock:
                    outer.requests.append({"path": self.path, "headers": dict(self.headers), "lines": lines})
                    number = len(outer.requests)
                status, text = outer.answer(number, lines)
                if status is None:  # hangs up without a word
                    self.connection.close()
                    return
                self.send_response(status)
                if status in (301, 302, 307, 308):
                    self.send_header("Location", text.decode())
                    text = b""
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *unused):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def accepted(self):
        """Records as a server keeps them: by source and seq, each once."""
        kept = {}
        for request in self.requests:
            head = request["lines"][0]
            for line in request["lines"][1:]:
                kept.setdefault((head["source"], line["seq"]), line)
        return [line for _, line in sorted(kept.items())]


class Sending(ProbeTest):
    def setUp(self):
        super().setUp()
        os.environ["no_proxy"] = "127.0.0.1"
        sender = self.probe._Sender
        sender.PAUSE, sender.LONGEST, sender.TIMEOUT = 0.02, 0.2, 2.0
        self.addCleanup(self.end_threads)

    def end_threads(self):
        self.probe.close()
        for thread in threading.enumerate():
            if thread.name == "rankscope-probe":
                thread.stop()
                thread.join(10)

    def serve(self, answer=None, port=0):
        server = Server(answer, port)
        self.addCleanup(server.close)
        return server

    def wait(self, condition, seconds=15):
        until = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), until, "waited in vain")
            time.sleep(0.01)

    def steps_seen(self, server):
        return [line["n"] for line in server.accepted() if line["type"] == "step"]

    def test_batches_are_compressed_numbered_and_signed(self):
        server = self.serve()
        self.start(url=server.url + "/", token="secret")
        for _ in range(50):
            self.probe.step()
        self.probe.close()
        self.assertEqual(list(range(50)), self.steps_seen(server))
        expected = 0
        for request in server.requests:
            head = request["lines"][0]
            self.assertEqual("/api/v1/samples", request["path"])
            self.assertEqual("Bearer secret", request["headers"]["Authorization"])
            self.assertEqual("application/x-ndjson", request["headers"]["Content-Type"])
            self.assertEqual(("batch", "rankscope.probe/1", 0), (head["type"], head["format"], head["rank"]))
            self.assertEqual(expected, head["first"], "no gap between batches")
            self.assertEqual([line["seq"] for line in request["lines"][1:]], list(range(head["first"], head["last"] + 1)))
            expected = head["last"] + 1
        self.assertEqual(1, len({request["lines"][0]["source"] for request in server.requests}))
        self.assertEqual("end", server.accepted()[-1]["type"], "the end is sent before the process ends")
        self.assertEqual(records(os.path.join(self.directory, self.files()[0])), server.accepted())

    def test_what_was_written_while_the_server_was_away_is_sent_when_it_comes(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.start(url="http://127.0.0.1:%d" % port, token="t")
        before = time.monotonic()
        for _ in range(500):
            self.probe.step()
        self.assertLess(time.monotonic() - before, 5, "an absent server slows nothing")
        self.wait(lambda: self.probe._probe.sender.failures > 1)
        server = self.serve(port=port)
        self.wait(lambda: len(self.steps_seen(server)) == 500)
        self.probe.close()
        self.assertEqual("", self.stderr.getvalue())

    def test_errors_of_the_server_lose_nothing(self):
        answers = {1: (500, b"no"), 2: (503, b""), 3: (429, b""), 4: (None, b""), 5: (502, b"")}
        server = self.serve(lambda number, batch: answers.get(number, (204, b"")))
        self.start(url=server.url, token="t")
        for _ in range(20):
            self.probe.step()
        self.wait(lambda: len(server.requests) > 5 and len(self.steps_seen(server)) == 20)
        self.probe.close()
        sent_again = [request["lines"][0]["first"] for request in server.requests[:6]]
        self.assertEqual([0] * 6, sent_again)

    def test_a_refused_token_ends_sending_with_one_line(self):
        server = self.serve(lambda number, batch: (401, b""))
        self.start(url=server.url, token="wrong")
        self.probe.step()
        self.wait(lambda: self.probe._probe.sender.gone)
        for _ in range(20):
            self.probe.step()
        self.probe.close()
        self.assertEqual(1, len(server.requests))
        self.assertEqual(1, self.stderr.getvalue().count("the token is not accepted (HTTP 401)"))
        self.assertEqual(21, len([r for r in records(self.path()) if r["type"] == "step"]), "the file has everything")

    def path(self):
        return os.path.join(self.directory, self.files()[0])

    def test_a_slow_server_slows_neither_steps_nor_the_end(self):
        def slow(number, batch):
            time.sleep(1.5)
            return 200, b"{}"

        server = self.serve(slow)
        self.probe._Sender.AT_END = 0.3
        self.start(url=server.url, token="t")
        before = time.monotonic()
        for _ in range(200):
            self.probe.step()
        self.assertLess(time.monotonic() - before, 1.0)
        before = time.monotonic()
        self.probe.close()
        self.assertLess(time.monotonic() - before, 1.0)

    def test_an_absent_server_does_not_delay_the_end(self):
        self.start(url="http://127.0.0.1:9", token="t")
        self.probe.step()
        self.wait(lambda: self.probe._probe.sender.failures > 0)
        before = time.monotonic()
        self.probe.close()
        self.assertLess(time.monotonic() - before, 0.5)

    def test_part_of_a_batch_may_be_acknowledged(self):
        def half(number, batch):
            head = batch[0]
            return 200, json.dumps({"acknowledged": (head["first"] + head["last"]) // 2}).encode()

        server = self.serve(half)
        self.start(url=server.url, token="t")
        for _ in range(30):
            self.probe.step()
        self.wait(lambda: len(self.steps_seen(server)) == 30)
        firsts = [(request["lines"][0]["first"], request["lines"][1]["seq"]) for request in server.requests]
        self.assertTrue(all(first == seq for first, seq in firsts), "numbers and lines stay together")

    def test_a_batch_that_is_too_large_is_halved(self):
        server = self.serve(lambda number, batch: (413, b"") if len(batch) > 11 else (200, b"{}"))
        self.start(url=server.url, token="t")
        for _ in range(100):
            self.probe.step()

        def arrived():
            taken = [request for request in server.requests if len(request["lines"]) <= 11]
            return len({line["n"] for request in taken for line in request["lines"][1:] if line["type"] == "step"}) == 100

        self.wait(arrived)

    def test_the_token_is_not_carried_to_another_address(self):
        other = self.serve()
        server = self.serve(lambda number, batch: (307, other.url.encode()))
        self.start(url=server.url, token="secret")
        self.probe.step()
        self.wait(lambda: self.probe._probe.sender.gone)
        self.assertEqual([], other.requests)

    def test_without_a_token_nothing_is_sent_and_the_reason_is_said(self):
        server = self.serve()
        os.environ["RANKSCOPE_URL"] = server.url
        self.start()
        self.probe.step()
        self.probe.close()
        self.assertEqual([], server.requests)
        self.assertEqual(1, self.stderr.getvalue().count("nothing is sent"))

    def test_the_token_may_stand_in_a_file(self):
        server = self.serve()
        path = os.path.join(self.directory, "token")
        with open(path, "w", encoding="utf-8") as file:
            file.write("from-file\n")
        os.environ.update(RANKSCOPE_URL=server.url, RANKSCOPE_TOKEN_FILE=path)
        self.start()
        self.probe.step()
        self.probe.close()
        self.assertEqual("Bearer from-file", server.requests[0]["headers"]["Authorization"])

    def test_an_address_that_is_none_ends_sending_and_not_the_log(self):
        self.start(url="not an address", token="t")
        for _ in range(5):
            self.probe.step()
        self.probe.close()
        self.assertEqual(5, len([r for r in records(self.path()) if r["type"] == "step"]))


if __name__ == "__main__":
    unittest.main()
