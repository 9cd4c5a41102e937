"""The ``forage`` command: flags to policy values, values to calls, results to text and an exit code. No logic of its own.

Data goes to standard output, what people read goes to standard error. Exit codes: 0 done, 1 failed, 2 wrong usage, 5 refused by the egress
guard, 10 a browser is needed and missing, 11 interrupted with the work so far kept.
"""

from __future__ import annotations

import argparse
import errno
import functools
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn

from forage.errors import BrowserMissingError, EgressError, ForageError, InvalidPolicyError

__all__ = ["build_parser", "main"]

COMMANDS = ("crawl", "fetch", "resolve", "replay", "snapshots", "manifest", "egress", "render", "probe", "mirror", "doctor", "demo")


class _Parser(argparse.ArgumentParser):
    """A parser that refuses what it does not know by itself, so that the usage shown is the subcommand's."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


class _Version(argparse.Action):
    """Prints the version; it is looked up when it is asked for only."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from forage._version import __version__

        print(f"forage {__version__}")
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """The whole command line; each command is a module of this package with ``add_parser`` and ``run``."""
    parser = _Parser(
        prog="forage",
        description="Crawl URLs that nobody vouches for through a pinned egress guard, and cite what was kept.",
        epilog="exit codes: 0 done, 1 failed, 2 wrong usage, 5 refused by the guard, 10 browser missing, 11 interrupted",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        import_module(f"forage.cli.{name}").add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; never raises for what a user may cause."""
    args = argparse.Namespace()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Keys and URLs of strangers may hold what no encoding takes: a lone surrogate becomes its escape, in JSON the very same one.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with _interrupts_held():
            run = _load(argv, args)
        code = run()
        sys.stdout.flush()
    except _FORESEEN as exc:
        return _explain(args, exc)
    except BaseExceptionGroup as group:
        # What ends a nursery arrives in a group. It is told like a single one, unless something unforeseen is among its members.
        foreseen, others = group.split(_FORESEEN)
        if foreseen is None or others is not None:
            raise
        return _explain(args, _first(foreseen))
    return code


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """An interrupt within the block is raised at its end: modules that are being loaded may lose it, or make another error of it."""
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt


def _load(argv: Sequence[str] | None, args: argparse.Namespace) -> Callable[[], int]:
    """Read the command line into ``args``; what is left to be run."""
    build_parser().parse_args(argv, args)
    import trio  # not above: an interrupt while it loads must be told like any other

    run = import_module(f"forage.cli.{args.command}").run
    # An interrupt waits for the next checkpoint of the command's own task: in the middle of anything else it could break what nothing
    # expects to be broken, and what is said about that would hide that it was the user.
    work = functools.partial(run, args, sys.stdout, sys.stderr)
    return lambda: int(trio.run(work, restrict_keyboard_interrupt_to_checkpoints=True))


_FORESEEN = (ForageError, KeyboardInterrupt, OSError)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    member = group.exceptions[0]
    return _first(member) if isinstance(member, BaseExceptionGroup) else member


def _explain(args: argparse.Namespace, exc: BaseException) -> int:
    """One line for a person where there is something to say, and the exit code."""
    if isinstance(exc, KeyboardInterrupt):
        return 11
    if isinstance(exc, OSError) and not isinstance(exc, ForageError):
        return _output_lost(args, exc)
    if isinstance(exc, InvalidPolicyError):
        print(f"{_name(args)}: {_as_flags(exc, args)}", file=sys.stderr)
        return 2
    print(f"{_name(args)}: {exc}", file=sys.stderr)
    if isinstance(exc, BrowserMissingError):
        return 10
    return 5 if isinstance(exc, EgressError) else 1


def _output_lost(args: argparse.Namespace, exc: OSError) -> int:
    """The output cannot be written. Anything else that the system refused was not foreseen."""
    if not isinstance(exc, BrokenPipeError) and exc.errno not in _NO_ROOM:
        raise exc
    # What a later flush would say is of no use to anybody.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(exc, BrokenPipeError):
        return 128 + signal.SIGPIPE  # the reader went away, and knows it
    print(f"{_name(args)}: the output cannot be written ({exc.strerror})", file=sys.stderr)
    return 1


def _name(args: argparse.Namespace) -> str:
    """The command as it was called: ``forage egress check``."""
    words = (getattr(args, level, None) for level in ("command", "action", "mirror_command"))
    return " ".join(["forage", *(word for word in words if word)])


_LONGEST_SHOWN = 80
# Members of policies and sources whose flag is called otherwise.
_FLAGS = {
    "allow_networks": "--allow-network",
    "archive_base": "--archive-base",
    "connections": "--max-connections",
    "headers": "--header",
    "host": "--listen",
    "ports": "--port",
    "refuse_hosts": "--refuse-host",
    "seed.url": "url",
    "should_follow": "--follow",
    "source.headers": "--header",
    "source.id": "--id",
    "source.url": "url",
    "source.user_agent": "--user-agent",
    "state": "--state",
    "test_loopback_origins": "--allow-loopback-origin",
    "user": "--browser-user",
}


def _as_flags(exc: InvalidPolicyError, args: argparse.Namespace) -> str:
    """The error in the words of the command line: its flag in place of the Python name, values as they are typed."""
    field = exc.field
    flag = _FLAGS.get(field) or (f"--{field.replace('_', '-')}" if field.isidentifier() and hasattr(args, field) else field)
    accepted = exc.accepted.removeprefix("None or ").removesuffix(" or None").removeprefix("a list of ")
    return f"{flag}: takes {accepted}" + ("" if exc.got is None else f", not {_typed(exc.got)}")


def _typed(value: object) -> str:
    """A value as somebody typed it. Flags that may be given several times become tuples, whole seconds become floats."""
    if isinstance(value, (list, tuple)):
        text = ", ".join(map(_typed, value))
    else:
        text = repr(value) if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"
