"""What keys do: a view of the snapshot, and how a key changes it. Pure: no terminal."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable

import msgspec

from regency.cli.top.snapshot import BrokerLine, EventLine, Snapshot

SORTS = ("trouble", "broker", "leads", "records/s", "bytes/s", "lag", "disk")
"""By what brokers are sorted, in the order in which `s` takes them; the most first."""
HELP = (
    "q       end",
    "s       sort brokers by the next of: " + ", ".join(SORTS),
    "/ WORD  only brokers, partitions, groups and events in which the word stands",
    "b ID    one broker: its partitions in trouble, and what was decided about it",
    "t NAME  one topic: all of its partitions, and what was decided about them",
    "space   pause: the screen stands still until space again",
    "Esc     back: out of what is typed, a broker, a topic, a word",
    "? or h  this help",
)
_ASKS = {"/": "filter", "b": "broker", "t": "topic"}
_ARROWS = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]")
_ENTER, _BACK, _ESCAPE, _END = "\r\n", "\x7f\b", "\x1b", "\x04"


class View(msgspec.Struct, frozen=True):
    """What of a snapshot is shown, and how."""

    sort: str = SORTS[0]
    word: str = ""
    """What has to stand in a line; in any case of letters."""
    broker: int | None = None
    topic: str = ""
    paused: bool = False
    help: bool = False
    asks: str = ""
    """What is being typed: `filter`, `broker` or `topic`; empty: nothing."""
    typed: str = ""
    ended: bool = False

    @property
    def hint(self) -> str:
        """What the screen says of it, in a few words."""
        if self.asks:
            return f"{self.asks}: {self.typed}_"
        said = [f"/{self.word}"] if self.word else []
        said += [f"broker {self.broker}"] if self.broker is not None else []
        said += [f"topic {self.topic}"] if self.topic else []
        said += [f"by {self.sort}"] if self.sort != SORTS[0] else []
        said += ["paused"] if self.paused else []
        return ", ".join(said)


def press(view: View, keys: str) -> View:
    """The view after these keys. Keys that mean nothing change nothing; those of arrows and such are passed over."""
    for key in _ARROWS.sub("", keys):
        view = _typed(view, key) if view.asks else _pressed(view, key)
    return view


def _pressed(view: View, key: str) -> View:
    if view.help and key not in f"qQ{_END}":
        return msgspec.structs.replace(view, help=False)
    changes: dict[str, object] = {}
    if key in f"qQ{_END}":
        changes = {"ended": True}
    elif key == "s":
        changes = {"sort": SORTS[(SORTS.index(view.sort) + 1) % len(SORTS)]}
    elif key == " ":
        changes = {"paused": not view.paused}
    elif key in "h?":
        changes = {"help": True}
    elif key in _ASKS:
        changes = {"asks": _ASKS[key], "typed": ""}
    elif key == _ESCAPE:
        changes = {"word": "", "broker": None, "topic": ""}
    return msgspec.structs.replace(view, **changes)


def _typed(view: View, key: str) -> View:
    if key in _ENTER:
        return _asked(msgspec.structs.replace(view, asks="", typed=""), view.asks, view.typed.strip())
    if key in (_ESCAPE, _END):
        return msgspec.structs.replace(view, asks="", typed="")
    typed = view.typed[:-1] if key in _BACK else view.typed + (key if key.isprintable() else "")
    return msgspec.structs.replace(view, typed=typed)


def _asked(view: View, what: str, answer: str) -> View:
    if what == "broker":
        number = int(answer) if answer.isdecimal() and len(answer) < 10 else None
        return msgspec.structs.replace(view, broker=number, topic="")
    if what == "topic":
        return msgspec.structs.replace(view, topic=answer, broker=None)
    return msgspec.structs.replace(view, word=answer)


def seen(snapshot: Snapshot, view: View) -> Snapshot:
    """What of the snapshot the view shows, brokers in its order."""
    word = view.word.casefold()
    brokers = [
        each
        for each in snapshot.brokers
        if (view.broker is None or each.broker == view.broker)
        and _has(word, f"broker {each.broker} {each.state} {each.address or ''} {each.failure or ''}")
    ]
    worst = [
        each
        for each in (snapshot.focused if view.topic and snapshot.focus == view.topic else snapshot.worst)
        if (view.broker is None or view.broker in each.replicas)
        and (not view.topic or each.topic == view.topic)
        and _has(word, f"{each.topic}-{each.partition} {each.kind}")
    ]
    events = [
        each
        for each in snapshot.events
        if _has(word, each.told)
        and (view.broker is None or _names_broker(each.told, view.broker))
        and _has(view.topic.casefold(), each.told)
    ]
    if (view.topic or word) and view.broker is None:  # an event counts partitions: of those that are looked at, each
        told = {(each.controller_epoch, each.time_ms, each.told): each for each in events}
        for each in snapshot.decisions:  # numbered on their own: an event and a decision may have one number
            if _has(word, each.subject) and (not view.topic or _is_of(each.subject, view.topic)):
                line = EventLine(each.time_ms, each.controller_epoch, each.number, each.told)
                told.setdefault((line.controller_epoch, line.time_ms, line.told), line)
        events = [told[key] for key in sorted(told, key=operator.itemgetter(0, 1))]
    looks_elsewhere = bool(view.topic) or view.broker is not None
    groups = [each for each in snapshot.groups if not looks_elsewhere and _has(word, f"group {each.group}")]
    brokers = in_order(brokers, view.sort)
    return msgspec.structs.replace(snapshot, brokers=brokers, worst=worst, groups=groups, events=events)


def _is_of(subject: str, topic: str) -> bool:
    """Whether a decision is about the topic or one of its partitions."""
    return subject == topic or (subject.startswith(f"{topic}-") and subject[len(topic) + 1 :].isdecimal())


def in_order(brokers: Iterable[BrokerLine], sort: str) -> list[BrokerLine]:
    """Brokers with something wrong first, or the most of what is sorted by; then by number."""

    def key(each: BrokerLine) -> tuple[float, int]:
        moved = (each.bytes_in_per_s or 0) + (each.bytes_out_per_s or 0)
        most = {
            "leads": each.leads,
            "records/s": each.records_per_s,
            "bytes/s": moved,
            "lag": each.lag,
            "disk": each.disk_used,
        }
        well = each.state == "live" and not each.failure
        return (float(well) if sort == "trouble" else -(most.get(sort) or 0), each.broker)

    return sorted(brokers, key=key)


def _has(word: str, text: str) -> bool:
    return word in text.casefold()


def _names_broker(told: str, broker: int) -> bool:
    """Whether an event is about a broker: `broker 2`, or one of `brokers 2, 3`."""
    words = told.replace(",", " ").replace("(", " ").replace(";", " ").split()
    for place, each in enumerate(words):
        if each in ("broker", "brokers"):
            for number in words[place + 1 :]:
                if not number.isdecimal():
                    break
                if int(number) == broker:
                    return True
    return False
