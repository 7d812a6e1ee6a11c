"""Writes that hold only while no other controller rules: batches of [check of the epoch, operations …].

No clock, no thread, no sleep; paths are the caller's. What a lost reply means is decided by reading back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from regency.model.crash_points import crash_point
from regency.model.errors import ControllerMoved
from regency.runtime.zookeeper.ops import MAX_MULTI_BYTES, MAX_MULTI_OPS, op_size
from regency.runtime.zookeeper.session import (
    Check,
    Create,
    Delete,
    MultiOutcome,
    Op,
    OpOutcome,
    SetData,
    ZkAuthFailed,
    ZkCode,
    ZkConnectionLost,
    ZkSession,
    ZkSessionLost,
    Znode,
)

MAX_BATCH_OPS: Final = MAX_MULTI_OPS - 1
MAX_BATCH_BYTES: Final = MAX_MULTI_BYTES - 64 * 1024
"""Leaves room for a chroot of up to 128 bytes before each of 500 paths."""

_ABORTS_BEFORE_ALONE: Final = 2
_LOSSES_BEFORE_GIVING_UP: Final = 3


class FencedItem(msgspec.Struct, frozen=True):
    """Operations that stand or fall together, at least one. Items of one call must not depend on each other.

    They are written only while the `guards` hold, which items of a batch may share: each is sent once per batch.
    """

    ops: tuple[Op, ...]
    guards: tuple[Check, ...] = ()


class ItemOutcome(msgspec.Struct, frozen=True):
    """What became of an item: an outcome per operation; all OK, or nothing of it was written.

    `guard`: the one that does not hold any more, whose outcome is then the only result.
    """

    results: tuple[OpOutcome, ...]
    guard: Check | None = None

    @property
    def code(self) -> ZkCode:
        """OK, or why the item failed: conflict (BAD_VERSION), exists, gone (NO_NODE) …; read again and decide again."""
        for result in self.results:
            if result.code is not ZkCode.OK and result.code is not ZkCode.ROLLED_BACK:
                return result.code
        return ZkCode.OK

    @property
    def ok(self) -> bool:
        """Whether the item was written."""
        return self.code is ZkCode.OK


def fenced_write(
    session: ZkSession,
    items: Sequence[FencedItem],
    *,
    epoch_path: str,
    epoch_version: int,
    generation: int,
    resumed: bool = False,
) -> list[ItemOutcome]:
    """Write `items` while `epoch_path` has `epoch_version`; an outcome per item, in their order.

    Batches of at most 500 operations and 448 KiB, pipelined. Where a batch fails, the first result that is not a
    rollback decides: the check of the epoch → ControllerMoved; a guard → all items of the batch that have it are
    reported, and the rest is sent again without them; an item → it is reported and the rest is sent again without it,
    after two such aborts each item alone. Where a reply is lost: sync, read back; an item whose content is there is
    written, one that left no trace is sent again, anything else is a conflict. `resumed`: an earlier call with these
    items ended by ZkConnectionLost, so they are read back before anything is sent.

    Raises ControllerMoved, ZkSessionLost (`generation` is over), ZkConnectionLost (contact was lost three times in a
    row; items may or may not be written), ZkAuthFailed, ZkRequestTooLarge (before anything is sent; one item is too
    large) and ValueError for an item without operations, a version below 0 or a sequential create without another write
    beside it: it cannot be read back, so that the other one tells what became of both (not which path it got).
    """
    for item in items:
        _refuse_unfenceable(item)
    if epoch_version < 0:
        raise ValueError(f"version {epoch_version} of {epoch_path} would match any epoch")
    return _FencedWrite(session, items, Check(epoch_path, epoch_version), generation).run(resumed=resumed)


def _refuse_unfenceable(item: FencedItem) -> None:
    if not item.ops:
        raise ValueError("a fenced item without operations")
    for op in item.ops:
        if isinstance(op, Create):
            if op.sequential and all(isinstance(each, Check) or _is_sequential(each) for each in item.ops):
                raise ValueError(f"{op.path}: a sequential create alone cannot be read back after a lost reply")
        elif op.version is not None and op.version < 0:
            raise ValueError(f"version {op.version} of {op.path} would overwrite whatever is there")


def _is_sequential(op: Op) -> bool:
    return isinstance(op, Create) and op.sequential


class _Batch(msgspec.Struct, frozen=True):
    """Items (by index) sent together, and how often it has failed because of one of them."""

    items: tuple[int, ...]
    aborts: int = 0


class _FencedWrite:
    """One call of fenced_write."""

    def __init__(self, session: ZkSession, items: Sequence[FencedItem], fence: Check, generation: int) -> None:
        self._session = session
        self._items = items
        self._fence = fence
        self._generation = generation
        self._outcomes: dict[int, ItemOutcome] = {}

    def run(self, *, resumed: bool) -> list[ItemOutcome]:
        everything = range(len(self._items))
        batches = self._in_batches(self._read_back(everything, 0) if resumed else everything)
        losses = 0
        while batches:
            crash_point("fenced.batches.before_send")
            try:
                sent = self._session.multi_pipelined(
                    [self._ops(batch) for batch in batches], generation=self._generation
                )
            except ZkConnectionLost:  # nothing was sent: there is no connection now
                losses += 1
                if losses >= _LOSSES_BEFORE_GIVING_UP:
                    raise
                self._session.sync(self._fence.path)
                continue
            crash_point("fenced.batches.after_replies")
            again: list[_Batch] = []
            lost: list[int] = []
            for batch, outcome in zip(batches, sent, strict=True):
                if isinstance(outcome, MultiOutcome):
                    again += self._settle(batch, outcome)
                elif isinstance(outcome, ZkConnectionLost):
                    lost += batch.items
                else:
                    raise outcome
            losses = losses + 1 if lost else 0
            batches = again + self._in_batches(self._read_back(lost, losses))
        return [self._outcomes[index] for index in range(len(self._items))]

    def _ops(self, batch: _Batch) -> list[Op]:
        return [self._fence, *self._guards(batch), *(op for index in batch.items for op in self._items[index].ops)]

    def _guards(self, batch: _Batch) -> list[Check]:
        shared = {id(guards): guards for index in batch.items if (guards := self._items[index].guards)}
        return list(dict.fromkeys(guard for guards in shared.values() for guard in guards))

    def _in_batches(self, indexes: Sequence[int]) -> list[_Batch]:
        batches: list[_Batch] = []
        current: list[int] = []
        guards: dict[Check, None] = {}
        known: set[int] = set()
        """Guards of items that are in the batch, by identity: most items share theirs."""
        ops = size = 0
        for index in indexes:
            item = self._items[index]
            item_size = sum(map(op_size, item.ops))
            added = () if id(item.guards) in known else tuple([each for each in item.guards if each not in guards])
            added_size = sum(map(op_size, added))
            if current and (
                ops + len(item.ops) + len(added) > MAX_BATCH_OPS or size + item_size + added_size > MAX_BATCH_BYTES
            ):
                batches.append(_Batch(tuple(current)))
                current, ops, size = [], 0, 0
                guards, known, added = {}, set(), item.guards
                added_size = sum(map(op_size, added))
            current.append(index)
            guards.update(dict.fromkeys(added))
            known.add(id(item.guards))
            ops, size = ops + len(item.ops) + len(added), size + item_size + added_size
        return [*batches, _Batch(tuple(current))] if current else batches

    def _settle(self, batch: _Batch, outcome: MultiOutcome) -> list[_Batch]:
        """Record what `outcome` decides; returns what has to be sent again."""
        failed = outcome.failed_index
        if failed == 0:
            raise self._fence_failed(outcome.results[0])
        guards = self._guards(batch)
        if 0 < failed <= len(guards):
            return self._without(batch, guards[failed - 1], outcome.results[failed])
        position = 1 + len(guards)
        culprit = -1
        for index in batch.items:
            end = position + len(self._items[index].ops)
            if failed < 0 or position <= failed < end:
                culprit = index
                self._outcomes[index] = ItemOutcome(outcome.results[position:end])
            position = end
        if failed < 0:
            return []
        rest = tuple(index for index in batch.items if index != culprit)
        aborts = batch.aborts + 1
        if aborts >= _ABORTS_BEFORE_ALONE:
            return [_Batch((index,), aborts) for index in rest]
        return [_Batch(rest, aborts)] if rest else []

    def _without(self, batch: _Batch, guard: Check, result: OpOutcome) -> list[_Batch]:
        """Report the items of a batch whose guard does not hold; the others are sent again."""
        rest = []
        for index in batch.items:
            if guard in self._items[index].guards:
                self._outcomes[index] = ItemOutcome((result,), guard)
            else:
                rest.append(index)
        return [_Batch(tuple(rest), batch.aborts)] if rest else []

    def _fence_failed(self, result: OpOutcome) -> Exception:
        if result.code is ZkCode.NO_AUTH:
            return ZkAuthFailed(f"{self._fence.path}: ZooKeeper refused access.")
        return ControllerMoved(
            f"{self._fence.path} is no longer at version {self._fence.version} ({result.code.value}).",
            hint="Another controller rules: resign.",
        )

    def _read_back(self, lost: Sequence[int], losses: int) -> list[int]:
        """Decide the items whose reply was lost; returns those that left no trace."""
        if not lost:
            return []
        paths = sorted({op.path for index in lost for op in self._items[index].ops})
        while True:
            if losses >= _LOSSES_BEFORE_GIVING_UP:
                raise ZkConnectionLost(
                    f"ZooKeeper's reply was lost {losses} times in a row while {len(lost)} items were written.",
                    hint="They may or may not be: read them again.",
                )
            try:
                self._session.sync(self._fence.path)
                found = dict(zip(paths, self._session.read_many(paths), strict=True))
                break
            except ZkConnectionLost:
                losses += 1
        if self._session.generation != self._generation:
            raise ZkSessionLost(f"ZooKeeper session {self._generation} ended before a lost reply could be made up for.")
        return [index for index in lost if not self._recognise(index, found)]

    def _recognise(self, index: int, found: Mapping[str, Znode | None]) -> bool:
        """Record what the read-back says of an item whose reply was lost; False where it left no trace."""
        ops = self._items[index].ops
        traces = [
            OpOutcome(ZkCode.OK, op.path)
            if _is_sequential(op)
            else _trace(op, found[op.path], self._session.session_id)
            for op in ops
        ]
        if any(trace.code not in (ZkCode.OK, ZkCode.ROLLED_BACK) for trace in traces):
            undone = (OpOutcome(ZkCode.ROLLED_BACK) if trace.ok else trace for trace in traces)
            self._outcomes[index] = ItemOutcome(tuple(undone))
            return True
        if all(trace.ok for trace in traces):
            self._outcomes[index] = ItemOutcome(tuple(traces))
            return True
        return False


def _trace(op: Op, znode: Znode | None, session_id: int) -> OpOutcome:
    """What a znode says of `op`: OK it was done, ROLLED_BACK it was not, anything else: another writer was there."""
    match op:
        case Create():
            owner = session_id if op.ephemeral else 0
            if znode is None:
                return OpOutcome(ZkCode.ROLLED_BACK)
            own = znode.data == op.data and znode.stat.version == 0 and znode.stat.ephemeral_owner == owner
            return OpOutcome(ZkCode.OK, op.path) if own else OpOutcome(ZkCode.NODE_EXISTS)
        case SetData():
            if znode is None:
                return OpOutcome(ZkCode.NO_NODE)
            if znode.stat.version == op.version:
                return OpOutcome(ZkCode.ROLLED_BACK)
            own = znode.data == op.data and znode.stat.version == op.version + 1
            return OpOutcome(ZkCode.OK, stat=znode.stat) if own else OpOutcome(ZkCode.BAD_VERSION)
        case Delete():
            if znode is None:
                return OpOutcome(ZkCode.OK)
            untouched = op.version is None or znode.stat.version == op.version
            return OpOutcome(ZkCode.ROLLED_BACK if untouched else ZkCode.BAD_VERSION)
        case Check():
            return _trace_of_check(op, znode)


def _trace_of_check(op: Check, znode: Znode | None) -> OpOutcome:
    """A check leaves no trace of its own: what it would say now counts."""
    if znode is None:
        return OpOutcome(ZkCode.NO_NODE)
    same = op.version is None or znode.stat.version == op.version
    return OpOutcome(ZkCode.OK if same else ZkCode.BAD_VERSION)
