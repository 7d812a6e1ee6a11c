"""The command `regency`: its subcommands, loaded when used, and what becomes of errors, Ctrl-C and closed pipes."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from regency import __version__
from regency.cli.asking.refusals import TopicMissing
from regency.cli.context import Lazy, LazyGroup, cluster_options, current, say
from regency.cli.exits import Exit, exit_on_termination, status_of
from regency.model.errors import RegencyError

_COMMANDS = {
    "up": Lazy("regency.cli.lab.cluster:up", "Start ZooKeeper and broker agents on this machine."),
    "down": Lazy("regency.cli.lab.cluster:down", "End the cluster of a directory."),
    "status": Lazy("regency.cli.lab.cluster:status", "Show the cluster of a directory and whether it is healthy."),
    "lab": Lazy("regency.cli.lab.verbs:lab", "Kill, stop, pause, resume, start and restart its processes."),
    "logs": Lazy("regency.cli.lab.logs:logs", "Show the logs of its processes, merged by time."),
    "top": Lazy("regency.cli.top.command:top", "Watch brokers, controller, partitions and decisions on one screen."),
    "demo": Lazy("regency.cli.lab.demo:demo", "Lose a ruling broker under load, and show that nothing else is lost."),
    "topics": Lazy("regency.cli.topics.command:topics", "Create, alter, list and describe topics."),
    "produce": Lazy("regency.cli.data.produce:produce", "Send lines to a topic."),
    "consume": Lazy("regency.cli.data.consume:consume", "Print the records of a topic."),
    "groups": Lazy("regency.cli.groups.command:groups", "Consumer groups: list, describe, reset offsets, delete."),
    "load": Lazy("regency.cli.data.load:load", "Write to a topic at a steady rate, and read along."),
    "configs": Lazy("regency.cli.cluster.configs:configs", "Show and change settings of topics and brokers."),
    "leaders": Lazy("regency.cli.cluster.leaders:leaders", "Elect preferred leaders, or any where there is none."),
    "partitions": Lazy(
        "regency.cli.partitions.command:partitions", "Move partitions: plan, execute, verify, cancel, list."
    ),
    "brokers": Lazy("regency.cli.brokers.command:brokers", "List, describe, drain, shut down and forget brokers."),
    "log": Lazy(
        "regency.cli.log.command:log", "Log directories, moving replicas between them, and dumps of log files."
    ),
    "explain": Lazy("regency.cli.cluster.explain:explain", "Tell how a partition came to its leader and its ISR."),
    "history": Lazy("regency.cli.cluster.history:history", "Tell what was decided in the cluster, and why."),
    "doctor": Lazy("regency.cli.cluster.doctor:doctor", "Tell where ZooKeeper, the controller and the agents differ."),
    "verify": Lazy("regency.cli.verify.command:verify", "Compare what the replicas of a topic hold."),
    "judge": Lazy("regency.cli.data.judge:judge", "Judge what clients did and saw by what Kafka promises."),
    "pipeline": Lazy("regency.cli.pipeline.command:pipeline", "Audit and analyse the cluster with Spark."),
    "cluster": Lazy(
        "regency.cli.cluster.command:cluster", "Tell whether the cluster is healthy, and wait until it is."
    ),
    "docs": Lazy("regency.cli.shipped:docs", "Print a page of the documents."),
    "deploy-files": Lazy("regency.cli.shipped:deploy_files", "Copy what runs and watches a cluster of machines."),
    "schema": Lazy("regency.cli.schemas:schema", "Print the JSON schema of what a command prints with -o json."),
    "completion": Lazy("regency.cli.completing:completion", "Print what makes a shell complete commands and names."),
    "zookeeper": Lazy("regency.cli.lab.daemons:zookeeper", "Run a ZooKeeper in the foreground."),
    "agent": Lazy("regency.cli.lab.daemons:agent", "Run a broker agent in the foreground."),
    "controller": Lazy(
        "regency.cli.cluster.controllers:controller", "Show who rules, have another rule, run one alone."
    ),
}


class RegencyGroup(LazyGroup):
    """Turns what went wrong in a subcommand into one line and an exit status."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the subcommand; a reader who closed the pipe has what he wanted."""
        try:
            result: object = super().invoke(ctx)
            if sys.stdout is not None:  # closed by the parent: its data is not wanted
                sys.stdout.flush()
        except TopicMissing as error:
            from regency.cli.asking.missing import explained

            raise explained(current().bootstrap_servers(), error) from error
        except BrokenPipeError:
            _forget_stdout()
            return Exit.DONE
        return result

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: ARG002  (always as a program of its own)
        **extra: Any,
    ) -> NoReturn:
        """Run, and end the process with the status of what happened."""
        with exit_on_termination() as ending:
            try:
                args = list(sys.argv[1:] if args is None else args)
                _refuse_undecoded(args)
                status = self._status(args, prog_name, complete_var, **extra)
            except Exception:
                # confluent-kafka answers a signal that comes while it reads its arguments with an error about them
                if ending.status is None:
                    raise
                status = ending.status
        sys.exit(int(status if ending.status is None else ending.status))

    def _status(self, args: Sequence[str] | None, prog_name: str | None, complete_var: str | None, **extra: Any) -> int:
        status: int
        try:
            result = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            status = result if isinstance(result, int) else Exit.DONE
        except click.ClickException as error:
            error.show()
            status = error.exit_code
        except RegencyError as error:
            say(f"Error: {error}")
            status = status_of(error)
        except UnicodeEncodeError as error:
            if not _is_undecoded(error.object[error.start : error.end]):
                raise
            say(f"Error: {error.object!a} is not UTF-8.")
            status = Exit.USAGE
        except (click.Abort, KeyboardInterrupt):
            status = Exit.INTERRUPTED
        except OSError as error:
            if error.filename is None and error.errno in _FULL:
                say(f"Error: {error.strerror}: the output, or a file of the cluster, cannot be written. Make room.")
                _forget_stdout()
                return Exit.FAILED
            if error.filename is None:
                raise  # not about a file of the user's: a mistake of ours
            say(f"Error: {os.fsdecode(error.filename)}: {error.strerror}.")
            status = Exit.FAILED
        return status


def _refuse_undecoded(arguments: Sequence[str]) -> None:
    """End with one line where an argument is not UTF-8; names of files may be any bytes."""
    for word in arguments:
        if _is_undecoded(word) and not os.path.lexists(word):
            say(f"Error: The argument {word!a} is not UTF-8.")
            sys.exit(Exit.USAGE)


def _is_undecoded(text: str) -> bool:
    """Whether bytes that are not UTF-8 stand in it, as the operating system handed them over."""
    return any("\ud800" <= character <= "\udfff" for character in text)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What writing to a full disk fails with."""


_ELSEWHERE = {verb: f"lab {verb}" for verb in ("kill", "stop", "pause", "resume", "start", "restart")}
"""Subcommands that are looked for on the top level, and where they are."""


@click.group(
    cls=RegencyGroup, lazy=_COMMANDS, elsewhere=_ELSEWHERE, context_settings={"help_option_names": ["-h", "--help"]}
)
@cluster_options
@click.version_option(__version__, prog_name="regency")
def cli() -> None:
    """Run and examine a Regency cluster: Kafka's protocol and files, governed by a controller elected in ZooKeeper.

    \b
    Examples:
      regency up --detach                start three brokers, kept in .run/
      regency topics create flights --partitions 6 --replication-factor 3
      seq 1000 | regency produce flights
      regency consume flights --from-beginning --max-messages 5
      regency status                     exit status 3 when something is missing
      regency down

    Exit status of all commands: 0 done, 1 failed, 2 wrong use, 3 unhealthy, 4 still in progress, 5 timed out, 6 refused
    for safety.
    """


def _forget_stdout() -> None:
    """Keep the interpreter from complaining about the closed pipe once more when it ends."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


def main() -> NoReturn:
    """Entry point of the command `regency`."""
    cli.main(prog_name="regency")
