"""What the client of a server costs: its process CPU against the time of its requests.

A server that replays a plan runs in a process of its own: eight requests at once, a step every few
milliseconds, as a fast GPU would. CPU time of this process, threads included, is divided by the sum
of the requests' times (each of eight requests waits on its own) and by the wall time.

Example: python -m benchmarks.client_overhead --step-ms 8
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
from multiprocessing.connection import Connection

from specbench.records import Prompt, Sampling
from specbench.serving.ask import ask_all
from specbench.serving.dialects import Api, Ask
from specbench.serving.transport import address_of
from tests.served import serving

APIS: dict[str, Api] = {"vllm": "completions", "llamacpp": "llamacpp", "sglang": "sglang"}


def main(argv: list[str] | None = None) -> None:
    """A row per tool."""
    options = _options(argv)
    asked = [
        Ask(
            "toy", Prompt(str(i), "", "x", tuple(range(200))), Sampling(0.0), options.tokens, seed=0
        )
        for i in range(options.concurrency)
    ]
    print("| server | CPU of request time | CPU of wall time | µs CPU a token |")
    print("|---|---|---|---|")
    for tool, api in APIS.items():
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.Process(target=serve, args=(theirs, tool, options.step_ms / 1000))
        process.start()
        address = address_of(ours.recv(), "here")
        ask_all(address, api, asked)
        shares = []
        for _ in range(options.repeats):
            found = ask_all(address, api, asked)
            assert not found.faults, found.faults
            times = [reply.last_s for reply in found.replies]
            tokens = sum(reply.num_tokens for reply in found.replies)
            shares.append(
                (found.cpu_s / sum(times), found.cpu_s / max(times), found.cpu_s / tokens)
            )
        ours.send("stop")
        process.join()
        request, wall, token = (statistics.median(column) for column in zip(*shares, strict=True))
        print(f"| {tool} | {100 * request:.2f} % | {100 * wall:.1f} % | {1e6 * token:.0f} |")


def serve(pipe: Connection, tool: str, step_s: float) -> None:
    """Answer until told to stop; a step keeps two of three drafts."""
    with serving(tool=tool, plan=((3, 2),), step_s=step_s) as served:
        pipe.send(served.url)
        pipe.recv()


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--step-ms", type=float, default=8.0, help="of one target pass")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
