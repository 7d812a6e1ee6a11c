"""`regency completion`, and what shells offer: topics, brokers and groups of the live cluster, and settings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem, get_completion_class

from regency.cli.context import CliContext
from regency.cli.exits import CommandFailed

WITHIN_S = 1.5
"""A shell waits no longer for names; without an answer it offers none."""
SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_REGENCY_COMPLETE"
_NO_BLANK_BEHIND_EQUALS = """
_regency_completed() {
    _regency_completion "$@"
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    return 0
}
complete -o nosort -F _regency_completed regency"""
"""What click's script for bash lacks: a value follows the `=` of a setting."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what makes a shell complete commands, options, topics, brokers, groups and settings.

    Names come from the cluster in --dir, or at --bootstrap-server or REGENCY_BOOTSTRAP_SERVERS, when it answers within
    1.5 s; without one there are none.

    \b
    Examples:
      eval "$(regency completion bash)"                                    now; in ~/.bashrc for ever
      eval "$(regency completion zsh)"
      regency completion fish > ~/.config/fish/completions/regency.fish
    """
    found = get_completion_class(shell)
    if found is None:
        raise CommandFailed(f"Click knows no completion for {shell}.")
    root = click.get_current_context().find_root().command
    source = found(root, {}, "regency", VARIABLE)
    click.echo(source.source_template % source.source_vars())  # .source() runs bash to ask its version
    if shell == "bash":
        click.echo(_NO_BLANK_BEHIND_EQUALS)


def topics(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of topics."""
    return _offer(_asked(ctx, _topic_names), incomplete)


def brokers(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of live brokers."""
    return _offer(_asked(ctx, _broker_ids), incomplete)


def groups(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of consumer groups."""
    return _offer(_asked(ctx, _group_names), incomplete)


def config_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What `configs` changes: topics, or brokers and `all`."""
    if ctx.params.get("kind") == "topic":
        return topics(ctx, param, incomplete)
    return _offer(["all", *_asked(ctx, _broker_ids)], incomplete)


def config_keys(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Settings of what `configs` changes."""
    return _offer(_keys(topic=ctx.params.get("kind") != "broker"), incomplete)


def config_pairs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The same, with the `=` that a value comes after."""
    return [CompletionItem(f"{each.value}=") for each in config_keys(ctx, param, incomplete)]


def broker_pairs(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Settings of server.properties, with the `=`."""
    return _offer((f"{key}=" for key in _keys(topic=False)), incomplete)


def lab_parts(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What a lab is made of, running or not."""
    from regency.cluster.errors import ClusterError
    from regency.cluster.state import ZOOKEEPER, read_state
    from regency.cluster.verbs import ALL, CONTROLLER

    try:
        state = read_state(ctx.find_root().ensure_object(CliContext).directory)
    except ClusterError:
        state = None
    brokers = [] if state is None else [str(broker.id) for broker in state.brokers]
    return _offer([*brokers, CONTROLLER, ZOOKEEPER, ALL], incomplete)


def topics_of_a_list(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The last name of `flights,hotels`."""
    return _next_of(_asked(ctx, _topic_names), incomplete)


def brokers_of_a_list(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The last id of `1,2,3`."""
    return _next_of(_asked(ctx, _broker_ids), incomplete)


def schemas(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The next word of a command that has a schema."""
    from regency.cli.schemas import OUTPUTS

    said = list(ctx.params.get("command") or ())
    following = [each.split()[len(said)] for each in OUTPUTS if each.split()[: len(said)] == said != each.split()]
    return _offer(dict.fromkeys(following), incomplete)


def _next_of(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    before, comma, last = incomplete.rpartition(",")
    return [CompletionItem(f"{before}{comma}{word}") for word in words if word.startswith(last)]


def _keys(*, topic: bool) -> list[str]:
    from regency.model.settings.broker import KEYS
    from regency.model.settings.keys import TOPIC_KEYS

    return sorted(TOPIC_KEYS if topic else KEYS)


def _offer(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def _topic_names(servers: str) -> list[str]:
    from regency.cli.asking.wire import cluster_wire

    with cluster_wire(servers) as wire:
        return [each.name for each in wire.topics()]


def _broker_ids(servers: str) -> list[str]:
    from regency.cli.asking.wire import cluster_wire

    with cluster_wire(servers) as wire:
        return [str(broker) for broker in wire.brokers()]


def _group_names(servers: str) -> list[str]:
    from regency.cli.asking.wire import cluster_wire
    from regency.cli.groups.coordinators import list_groups

    with cluster_wire(servers) as wire:
        return list_groups(wire).names


def _asked(ctx: click.Context, ask: Callable[[str], list[str]]) -> list[str]:
    """What the cluster answers in time, else nothing: a shell that completes has no place for an error."""
    found: list[str] = []

    def run() -> None:
        try:
            found.extend(ask(ctx.find_root().ensure_object(CliContext).bootstrap_servers()))
        except Exception:  # noqa: BLE001, S110 - whatever it is, the word is typed without help
            pass

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WITHIN_S)
    return list(found)
