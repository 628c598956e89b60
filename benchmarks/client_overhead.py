"""What the client of a server costs: its process CPU against the time of its requests.

A server that replays a plan runs in a process of its own: eight requests at once, a step every few
milliseconds, as a fast GPU would. CPU time of this process, threads included, is divided by the sum
of the requests' times (each of eight requests waits on its own) and by the wall time.

With `--url` a server that is running is asked instead, as `--engine server` would.

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
from specbench.serving.service import open_service
from specbench.serving.transport import Address, address_of
from tests.served import serving

APIS: dict[str, Api] = {"vllm": "completions", "llamacpp": "llamacpp", "sglang": "sglang"}


def main(argv: list[str] | None = None) -> None:
    """A row per tool."""
    options = _options(argv)
    print("| server | CPU of request time | CPU of wall time | µs CPU a token |")
    print("|---|---|---|---|")
    if options.url:
        address, probe = address_of(options.url, "--url"), Prompt("0", "", "x", (5, 6, 7))
        found = open_service(address, [options.model], probe, "--url", named=options.model)
        print(row(found.tool, address, found.api, options))
        return
    for tool, api in APIS.items():
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.Process(target=serve, args=(theirs, tool, options.step_ms / 1000))
        process.start()
        print(row(tool, address_of(ours.recv(), "here"), api, options))
        ours.send("stop")
        process.join()


def row(tool: str, address: Address, api: Api, options: argparse.Namespace) -> str:
    """The medians over some batches, behind one that is not counted."""
    asked = [
        Ask(
            options.model,
            Prompt(str(i), "", "x", tuple(range(5, options.prompt_tokens + 5))),
            Sampling(0.0),
            options.tokens,
            seed=0,
            ignore_eos=True,
            salt=f"{tool}-{i}",
        )
        for i in range(options.concurrency)
    ]
    ask_all(address, api, asked)
    shares = []
    for _ in range(options.repeats):
        found = ask_all(address, api, asked)
        assert not found.faults, found.faults
        times = [reply.last_s for reply in found.replies]
        tokens = sum(reply.num_tokens for reply in found.replies)
        shares.append((found.cpu_s / sum(times), found.cpu_s / max(times), found.cpu_s / tokens))
    request, wall, token = (statistics.median(column) for column in zip(*shares, strict=True))
    return f"| {tool} | {100 * request:.2f} % | {100 * wall:.1f} % | {1e6 * token:.0f} |"


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
    parser.add_argument("--prompt-tokens", type=int, default=200)
    parser.add_argument("--url", default="", help="of a server that is running")
    parser.add_argument("--model", default="toy", help="as that server names it")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
