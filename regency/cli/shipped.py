"""What is shipped beside the code: `regency docs` prints its pages, `regency deploy-files` copies what runs a cluster.

Both lie in `share/` of an installed package, and where they are written in a checkout.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import click
import msgspec

import regency
from regency.cli.context import conclude, current, output_option, print_json, say, show
from regency.cli.exits import CommandFailed, Exit

DEPLOYED: Final = (
    "server.properties",
    "regency-agent.service",
    "prometheus/prometheus.yml",
    "prometheus/alerts.yml",
    "grafana/dashboards",
    "grafana/provisioning",
)
"""Files and folders of deploy/ that `deploy-files` copies."""
_RUNBOOK_URL = re.compile(r"(?<=runbook_url: )docs/")


def shipped(name: str) -> Path:
    """The folder `docs` or `deploy`. Raises CommandFailed where this installation has none."""
    package = Path(regency.__file__).parent
    for folder in (package / "share" / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise CommandFailed(
        f"This installation has no {name}.", hint="Install a wheel built by `pip wheel --no-deps .` in a checkout."
    )


class Page(msgspec.Struct, frozen=True):
    """A page of the documents: its name for `regency docs`, its title, and, where it was asked for, its text."""

    page: str
    title: str
    text: str | None = None


class Copied(msgspec.Struct, frozen=True):
    """What `regency deploy-files -o json` prints; `files` are below the directory."""

    directory: str
    files: list[str]


def _pages(folder: Path) -> dict[str, Path]:
    """Every page by its name: the path below docs/ without its ending, `index` for the first."""
    found = {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.md"))}
    pages = {"index" if name == "README" else name: path for name, path in found.items()}
    first = folder.parent / "README.md"  # beside docs/ in a checkout, and in share/ of an installed package
    return {"README": first, **pages} if first.is_file() else pages


def _title(text: str) -> str:
    return text.partition("\n")[0].lstrip("# ")


def _find(pages: dict[str, Path], asked: str) -> Path:
    """The page meant by `operate/runbook`, `runbook`, or a path as help and alerts print it. Raises CommandFailed."""
    name = asked.removeprefix("docs/").removesuffix(".md")
    matching = [each for each in pages if each == name or each.rpartition("/")[2] == name]
    if len(matching) == 1:
        return pages[matching[0]]
    if matching:
        raise CommandFailed(f"{asked} is the name of several pages: {', '.join(matching)}.")
    near = get_close_matches(name, [*pages, *(each.rpartition("/")[2] for each in pages)], 1)
    hint = f"Did you mean {near[0]}?" if near else "`regency docs` lists all pages."
    raise CommandFailed(f"There is no page {asked}.", hint=hint)


def section(text: str, anchor: str) -> str | None:
    """From the heading with this anchor, named as GitHub names it, to the next of its level; None without one."""
    lines, level, taken, fenced = text.splitlines(), 0, list[str](), False
    anchor = anchor.lower()
    for line in lines:
        fenced ^= line.startswith("```")
        heading = re.match(r"(#+) (.+)", line) if not fenced else None
        if heading is not None:
            if level and len(heading[1]) <= level:
                break
            if not level and re.sub(r"[^\w\- ]", "", heading[2].lower()).replace(" ", "-") == anchor:
                level = len(heading[1])
        if level:
            taken.append(line)
    return "\n".join(taken).rstrip() + "\n" if taken else None


@click.command()
@click.argument("page", required=False)
@output_option
def docs(page: str | None) -> None:
    """Print a page of the documents; without PAGE, list all.

    PAGE is a name from the list, its last part, or a path as help texts and alerts name it, also with #SECTION.

    \b
    Examples:
      regency docs
      regency docs tutorial
      regency docs docs/operate/runbook-regency.md#regencydatalooplag
    """
    pages = _pages(shipped("docs"))
    if page is None:
        show([Page(name, _title(path.read_text("utf-8"))) for name, path in pages.items()], ("page", "title"))
        return
    name, _, anchor = page.partition("#")
    text: str | None = _find(pages, name).read_text("utf-8")
    assert text is not None
    title = _title(text)
    if anchor and (text := section(text, anchor)) is None:
        raise CommandFailed(f"{name} has no section {anchor}.", hint=f"`regency docs {name}` prints all of it.")
    if current().json:
        print_json([Page(name, title, text)])
    else:
        click.echo_via_pager(text)


@click.command("deploy-files")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--docs-url",
    metavar="URL",
    help="Where the folder docs/ is published: alerts then name their runbook sections there.",
)
@click.option("--overwrite", is_flag=True, help="Replace files that are there and differ.")
@output_option
def deploy_files(directory: Path, docs_url: str | None, overwrite: bool) -> Exit:
    """Copy what runs and watches a cluster of machines into DIRECTORY.

    That is server.properties and the systemd unit of a broker, Prometheus' configuration and alert rules, and Grafana's
    dashboards. `regency docs install` and `regency docs monitoring` say what to change in them.

    Exit status 6 where a file that is there differs and --overwrite is not given: then nothing is written.

    \b
    Examples:
      regency deploy-files /etc/regency
      regency deploy-files ./monitoring --docs-url https://wiki.example/regency/docs
    """
    if docs_url is not None and not re.fullmatch(r"https?://[^\s]+", docs_url):
        raise click.BadParameter(f"{docs_url} is no http:// or https:// address.", param_hint="--docs-url")
    root = shipped("deploy")
    wanted: dict[Path, bytes] = {}
    for name in DEPLOYED:
        for source in sorted((root / name).rglob("*")) if (root / name).is_dir() else [root / name]:
            if source.is_file():
                wanted[directory / source.relative_to(root)] = source.read_bytes()
    alerts = directory / "prometheus" / "alerts.yml"
    if docs_url is not None:
        base = docs_url.rstrip("/") + "/"
        wanted[alerts] = _RUNBOOK_URL.sub(lambda _: base, wanted[alerts].decode()).encode()
    differing = [path for path, data in wanted.items() if path.exists() and path.read_bytes() != data]
    if differing and not overwrite:
        names = ", ".join(map(str, differing[:3])) + (f" and {len(differing) - 3} more" if len(differing) > 3 else "")
        say(f"Error: {names} would be replaced by something else. Look at them, then say --overwrite.")
        return Exit.REFUSED
    for path, data in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    if current().json:
        print_json(Copied(str(directory), [str(each.relative_to(directory)) for each in wanted]))
    else:
        conclude(f"{len(wanted)} files written to {directory}.")
        if docs_url is None:
            say("Alerts name their runbook sections as docs/...#...: `regency docs PAGE#SECTION` prints one, and")
            say("--docs-url makes them addresses.")
    return Exit.DONE
