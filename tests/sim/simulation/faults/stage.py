"""What all faults share: the world, and what lasts on whom. Faults overlap: the end of one heals no other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from regency.model.ids import BrokerId, TopicPartition
from simulation.faults.plan import Fault
from simulation.faults.points import Points
from simulation.kernel.scheduler import Process
from simulation.world import Host, World

Undo = Callable[[], None]
Deed = Callable[[Fault, Host], Undo | None]


_WHOLLY: Final = 0.3
"""How often a power cut takes all that was not synced."""


class Told(NamedTuple):
    """Whom faults tell of what they do."""

    lossy_crash: Callable[[BrokerId], None]
    """A machine lost what was not synced."""
    kill_client: Callable[[float], None]
    """Kill a client; the number in [0, 1) says which."""
    seek: Callable[[TopicPartition, int], None]
    """Have consumers go on at an offset of a partition."""
    look_again: Callable[[], None]
    """Have producers ask who leads."""
    recreating: Callable[[str], None]
    """A topic is about to be deleted and made anew."""
    removing: Callable[[str], None]
    """A topic's znodes are about to be taken away for good."""
    losing_state: Callable[[TopicPartition], None]
    """The state of a partition is about to be taken away."""
    compacted: Callable[[TopicPartition], None]
    """A partition may have holes from now on."""


class Stage:
    """Where faults happen, until `close`."""

    def __init__(self, world: World, points: Points, told: Told) -> None:
        self.world = world
        self.points = points
        self.told = told
        self.closed = False
        self._lasting: dict[Hashable, dict[object, Any]] = {}

    def note(self, who: str, words: str, *values: object) -> None:
        self.world.note("fault", who, words, *values)

    def later(self, delay_us: int, work: Callable[[], object]) -> None:
        """Do something later, unless everything has been healed by then."""

        def due() -> None:
            if not self.closed:
                work()

        self.world.scheduler.at(delay_us, due)

    def close(self) -> None:
        """Everything is healed by somebody else: nothing lasts, nothing more begins, and nothing is undone."""
        self.closed = True
        self.points.disarm_all()

    def lasts(self, key: Hashable, value: Any, apply: Callable[[Sequence[Any]], None]) -> Undo:
        """Have `value` last on what `key` names; `apply` is given all that last there, now and after the undoing."""
        values = self._lasting.setdefault(key, {})
        token = object()
        values[token] = value
        apply(list(values.values()))

        def undo() -> None:
            if values.pop(token, None) is not None and not self.closed:
                apply(list(values.values()))

        return undo

    # Processes

    def die(self, host: Host, *, lossy: bool, wholly: bool | None = None) -> None:
        """Kill an agent; lossy, cut the power of its machine: wholly, with all that was not synced; None: by chance."""
        if wholly is None:
            wholly = lossy and self.world.scheduler.random.random() < _WHOLLY
        if lossy:
            self.told.lossy_crash(host.broker)
        self.world.kill_agent(host.broker, lossy=lossy, wholly=wholly)

    def keep_down(self, host: Host) -> Undo:
        """Nobody starts the host's agent until this, and whatever else keeps it down, is undone."""

        def apply(values: Sequence[Any]) -> None:
            if not values:
                self.world.start_agent(host.broker)

        return self.lasts(("down", host.broker), True, apply)

    def start_again(self, host: Host, after_us: int) -> None:
        """Start the host's agent, which has ended, a while later: at once if everything has been healed meanwhile."""
        if self.closed:
            self.world.start_agent(host.broker)
        else:
            self.later(after_us, self.keep_down(host))

    def pause(self, processes: Sequence[Process | None]) -> Undo:
        """Stop processes until this, and whatever else pauses them, is undone."""

        def pause(process: Process) -> Undo:
            def apply(values: Sequence[Any]) -> None:
                if not values:
                    process.resume()
                elif not process.paused:
                    process.pause()

            return self.lasts(("pause", process), True, apply)

        return together([pause(process) for process in processes if process is not None and process.alive])


def together(undos: Sequence[Undo]) -> Undo:
    return partial(_each, list(undos))


def _each(undos: Sequence[Undo]) -> None:
    for undo in undos:
        undo()
