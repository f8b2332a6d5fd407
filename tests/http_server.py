"""Stand-ins for servers of other projects that programs ask over HTTP."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class HttpServer(ThreadingHTTPServer):
    """A server on loopback, in a thread while the context lasts."""

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self._thread.join()
        self.server_close()


class QuietHandler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass
