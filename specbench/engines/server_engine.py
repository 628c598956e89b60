"""`server`: OpenAI-compatible servers that are already running, one per γ, or restarted for each.

A server's γ is fixed when it starts (a γ in a request is silently ignored by llama.cpp, and vLLM
has none), so that each γ, and γ = 0 for the baseline, needs a URL of its own or a restart.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Sequence

from specbench.engines.arguments import FLAG, Arguments
from specbench.engines.base import DraftRef, Settings
from specbench.engines.served import ServedEngine
from specbench.errors import CellRefused, PairRefused, UsageError, clean
from specbench.models.lm import UNLIMITED
from specbench.records import Cell, Prompt
from specbench.serving.faults import ServerFault
from specbench.serving.service import Service, open_service
from specbench.serving.transport import Address, address_of, get_json

NAMES = ("url", "restart", "model", "tokenizer", "api_key_env", "timeout", "retries", "start")
PER_GAMMA = "url."
HOLE = "{gamma}"
LOOK_S = 1.0
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")


class ServerEngine(ServedEngine):
    """Servers at URLs that the user gives."""

    name = "server"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        given = Arguments(self.name, settings.arguments)
        given.refuse_unknown(NAMES, (PER_GAMMA,))
        self.model = given.text("model")
        self.tokenizer_ref = given.text("tokenizer", settings.target)
        self.start_s = given.number("start", 600, 1, 86_400)
        self.restart = _command(given.text("restart"))
        self.in_turn = bool(self.restart)
        key = _api_key(given.text("api_key_env"))
        patience = given.number("timeout", 600, 1, 86_400)
        retries = given.number("retries", 3, 0, 20)
        self.addresses = {
            gamma: address_of(url, where, api_key=key, timeout_s=float(patience), retries=retries)
            for gamma, (url, where) in _urls(given, settings.gammas, bool(self.restart)).items()
        }
        self._open: dict[int, Service] = {}
        self.serving: int | None = None
        """The γ that the last restart was for."""

    def open_target(self) -> None:
        """The tokenizer, and every server that has to be there already."""
        named = "tokenizer" in dict(self.settings.arguments)
        self.load_tokenizer(self.tokenizer_ref, f"{FLAG} tokenizer" if named else "--target")
        for gamma in self.addresses if not self.restart else ():
            self._open[gamma] = self._opened(gamma)

    def open_draft(self, draft: DraftRef) -> None:
        """The server has its own; this one says what it is called and how long it may be."""
        if self.draft not in (None, draft):
            raise PairRefused(
                f"--engine server: the servers have one draft, and {draft.label} would be another",
                where=f"--draft {draft.label}",
                hint="a run for each draft, with the URLs of its servers",
            )
        self.draft = draft

    def examine(self, prompts: Sequence[Prompt], gamma: int) -> dict[str, object]:
        """What a server drafts with, and by which rule it accepts, is not known here."""
        assert self.draft is not None
        try:
            tool = self.service(gamma).tool
        except CellRefused as err:
            raise PairRefused(err.what, where=err.where, hint=err.hint) from err
        return {**super().examine(prompts, gamma), "verify_rule": f"of {tool}"}

    def prepare(self, cells: Sequence[Cell], prompts: Sequence[Prompt]) -> None:
        """Every server is there, or comes when its cell does."""

    def service(self, gamma: int) -> Service:
        """The server of this γ, restarted for it where that was asked for."""
        if self.restart and self.serving != gamma:
            self._restart(gamma)
        return self._open[gamma]

    @property
    def context(self) -> int:
        """The shortest context of the servers that are known so far."""
        return min((s.context for s in self._open.values()), default=UNLIMITED)

    def describe(self) -> dict[str, str]:
        """A server's device and dtypes are its own affair."""
        return {"device": "", "dtype": "", "draft_dtype": "", "threads": ""}

    def facts(self) -> dict[str, object]:
        """Where the servers are, what they say they are, and how they are asked."""
        return {
            "servers": {
                str(gamma): {
                    "url": address.url,
                    **(_about(self._open[gamma]) if gamma in self._open else {}),
                }
                for gamma, address in self.addresses.items()
            },
            **({"restart": shlex.join(self.restart)} if self.restart else {}),
        }

    def close(self) -> None:
        """Nothing here was started that is to end."""

    def _opened(self, gamma: int) -> Service:
        wanted = [self.settings.target_label, self.settings.target]
        where, address = _where(gamma, self.restart), self.addresses[gamma]
        try:
            return open_service(address, wanted, self.probe(), where, named=self.model)
        except ServerFault as fault:
            hint = f"another URL, or curl {address.url}/metrics and the server's log"
            raise UsageError(fault.what, where=where, hint=hint) from fault

    def _restart(self, gamma: int) -> None:
        """Run the user's command for this γ and wait until the server answers again."""
        self.serving = None
        self._warmed.clear()
        self._open.pop(gamma, None)
        command = [part.replace(HOLE, str(gamma)) for part in self.restart]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=self.start_s,
                check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as err:
            raise _not_restarted(f"restart for gamma {gamma} failed: {err}", command) from err
        if done.returncode:
            said = clean(done.stderr.decode("utf-8", "replace")).strip().splitlines()
            told = f": {said[-1][:200]}" if said else ""
            raise _not_restarted(
                f"restart for gamma {gamma} ended with code {done.returncode}{told}", command
            )
        _await(self.addresses[gamma], self.start_s, command)
        try:
            self._open[gamma] = self._opened(gamma)
        except UsageError as err:
            what = f"behind the restart for gamma {gamma}: {err.what}"
            raise CellRefused(what, where=err.where, hint=err.hint) from err
        self.serving = gamma


def _not_restarted(what: str, command: Sequence[str]) -> CellRefused:
    """What a restart's failure is, and the command to try by itself."""
    return CellRefused(what, where=f"{FLAG} restart", hint=shlex.join(command))


def _await(address: Address, seconds: float, command: Sequence[str]) -> None:
    """Wait until a server tells its models."""
    end = time.perf_counter() + seconds
    while True:
        try:
            get_json(address, "/v1/models")
        except ServerFault as fault:
            if time.perf_counter() > end:
                what = f"no server {seconds:g} s after its restart: {fault.what}"
                raise _not_restarted(what, command) from fault
            time.sleep(LOOK_S)
        else:
            return


def _urls(given: Arguments, gammas: Sequence[int], restart: bool) -> dict[int, tuple[str, str]]:
    """A URL for every γ, and the argument that gave it."""
    one = given.text("url")
    if restart:
        if not one:
            raise UsageError(
                f"{FLAG} restart: where the server is afterwards is not said",
                hint=f"{FLAG} url=http://127.0.0.1:8000",
            )
        if HOLE not in given.text("restart"):
            raise UsageError(
                f"{FLAG} restart: the command does not say which gamma is to be served",
                hint=f"{FLAG} 'restart=./serve.sh {HOLE}'",
            )
    found = dict.fromkeys(gammas, (one, f"{FLAG} url")) if restart else {}
    for name in given.values:
        if name.startswith(PER_GAMMA):
            number = name.removeprefix(PER_GAMMA)
            if not number.isdecimal():
                raise UsageError(f"{FLAG} {name}: no gamma", hint=f"{FLAG} url.4=http://…")
            found[int(number)] = (given.text(name), f"{FLAG} {name}")
    if one and not restart and gammas in ((0,), []):
        found.setdefault(0, (one, f"{FLAG} url"))
    missing = [str(gamma) for gamma in gammas if gamma not in found]
    if missing:
        told = ", ".join(missing)
        raise UsageError(
            f"no server for gamma {told}: a server's gamma is fixed when it starts",
            where="--gamma, with 0 for the baseline",
            hint=" ".join(f"{FLAG} url.{gamma}=http://HOST:PORT" for gamma in missing[:2])
            + f", or {FLAG} url=http://HOST:PORT with {FLAG} 'restart=COMMAND {HOLE}'",
        )
    if one and one not in (url for url, _ in found.values()):
        raise UsageError(
            f"{FLAG} url: it is for no gamma, as each has a server of its own",
            hint=f"leave it out, or {FLAG} 'restart=COMMAND {HOLE}' beside it",
        )
    return {gamma: found[gamma] for gamma in gammas}


def _command(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as err:
        raise UsageError(
            f"{FLAG} restart={text}: {err}", hint="a command as a shell reads it"
        ) from err


def _where(gamma: int, restart: Sequence[str]) -> str:
    return f"{FLAG} url" if restart else f"{FLAG} url.{gamma}"


def _api_key(variable: str) -> str:
    """A key from an environment variable, so that it stands in no file and no list of processes."""
    if not variable:
        return ""
    if not _VARIABLE.fullmatch(variable):
        # It may be the key itself, which is not to be shown.
        raise UsageError(
            f"{FLAG} api_key_env: no name of an environment variable",
            hint=f"export KEY=… and {FLAG} api_key_env=KEY",
        )
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UsageError(
            f"{FLAG} api_key_env={variable}: the variable is not set",
            hint=f"export {variable}=KEY, or leave api_key_env out",
        )
    if not all("!" <= character <= "~" for character in key):
        raise UsageError(
            f"{FLAG} api_key_env={variable}: the key has characters that no header can carry",
            hint=f"export {variable}=KEY, one line of ASCII without blanks",
        )
    return key


def _about(service: Service) -> dict[str, object]:
    return {
        "model": service.model,
        "tool": service.tool,
        "api": service.api,
        "metrics": service.counts,
    }
