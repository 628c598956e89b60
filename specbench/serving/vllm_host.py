"""A server of another environment, run by `python -m specbench.serving.vllm_host SETTINGS`.

vLLM says on no line that it is ready, does not end with its parent, and starts processes of its
own. So this small one stands between: it prints an address as soon as the server answers there,
and takes the whole group down when its own standard input ends, as it does if a run is killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

READY = "listening at "
LOOK_S = 0.5
PATIENCE_S = 10.0
"""For the server to end by itself."""
UNWANTED = threading.Event()


def main(argv: list[str]) -> None:
    """Start it, say where it is, and see it to its end, as the leader of its group.

    `settings` has command (words), environment (all of it) and url.
    """
    settings = json.loads(argv[0])
    # In this process's group, and both outputs into the log.
    server = subprocess.Popen(
        settings["command"], stdin=subprocess.DEVNULL, stdout=sys.stderr,
        env=settings["environment"],
    )  # fmt: skip
    threading.Thread(target=end_when_unwanted, args=(server,), daemon=True).start()
    while server.poll() is None and not answers(f"{settings['url']}/v1/models"):
        time.sleep(LOOK_S)
    if server.poll() is None:
        print(f"{READY}{settings['url']}", flush=True)
    code = server.wait()
    if not UNWANTED.is_set():
        # Whoever started this takes the rest of the group down, having read the code.
        # At once: an interpreter that ends properly waits for the thread's read.
        os._exit(code if 0 < code < 256 else 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def end_when_unwanted(server: subprocess.Popen[bytes]) -> None:
    """Wait until nobody wants the server any more, and end it."""
    while os.read(sys.stdin.fileno(), 1 << 10):
        pass
    UNWANTED.set()
    server.terminate()
    try:
        server.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        server.kill()


def answers(url: str) -> bool:
    """Whether a server tells its models."""
    try:
        with urllib.request.urlopen(url, timeout=LOOK_S * 4) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError, ValueError):
        return False


if __name__ == "__main__":
    main(sys.argv[1:])
