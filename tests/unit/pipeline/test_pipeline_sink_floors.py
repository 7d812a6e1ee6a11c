"""Where reading back begins, through every death of the driver, and the files it is kept in."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from pyarrow import fs

from regency.pipeline.errors import BatchBehindSink, PipelineOptionInvalid, SinkStateUnusable
from regency.pipeline.sink.floors import SinkState, TopicFloors, WritePlan, begin, finish
from regency.pipeline.sink.identity import WriteId
from regency.pipeline.sink.state import StateStore, _open

QUERY, OTHER = UUID(int=1), UUID(int=2)
TOPIC_ID, NEW_ID = UUID(int=10), UUID(int=11)


def ends(*offsets: int, topic_id: UUID = TOPIC_ID) -> dict[str, TopicFloors]:
    return {"t": TopicFloors(topic_id, dict(enumerate(offsets)))}


def plan(state: SinkState, begun: bool) -> WritePlan:
    return WritePlan(state.pending or {}, begun, 0, state.done)


def test_the_first_attempt_of_a_batch_begins_at_the_ends_of_its_topics():
    state, begun = begin(SinkState(), ends(5, 7))
    assert (state.pending, begun, state.number) == (ends(5, 7), False, 1)
    assert plan(state, begun).for_write(WriteId(QUERY, 0)) == (ends(5, 7), False)


def test_a_batch_that_was_not_finished_keeps_its_first_floors():
    state, _ = begin(SinkState(), ends(5, 7))
    again, begun = begin(state, ends(90, 70))
    assert (again, begun) == (state, True)
    assert plan(again, begun).for_write(WriteId(QUERY, 0)) == (ends(5, 7), True)


def test_a_topic_that_is_named_later_begins_where_it_ends_by_then():
    state, _ = begin(SinkState(), ends(5))
    added = {"u": TopicFloors(NEW_ID, {0: 3})}
    again, begun = begin(state, {**ends(9), **added})
    assert (again.pending, again.number, begun) == ({**ends(5), **added}, 2, True)


def test_the_next_batch_begins_anew_when_the_last_one_was_finished():
    state, _ = begin(SinkState(), ends(5))
    state = finish(state, WriteId(QUERY, 4))
    state, begun = begin(state, ends(9))
    assert plan(state, begun).for_write(WriteId(QUERY, 5)) == (ends(9), False)


def test_a_batch_that_spark_repeats_although_it_was_finished_is_read_back_from_its_first_floors():
    state = finish(begin(SinkState(), ends(5))[0], WriteId(QUERY, 4))
    state, begun = begin(state, ends(9))
    assert plan(state, begun).for_write(WriteId(QUERY, 4)) == (ends(5), True)
    state = finish(state, WriteId(QUERY, 4))
    state, begun = begin(state, ends(11))
    assert plan(state, begun).for_write(WriteId(QUERY, 4)) == (ends(5), True), "and once more"


def test_a_batch_that_had_begun_keeps_its_floors_while_the_one_before_is_repeated():
    state = finish(begin(SinkState(), ends(5))[0], WriteId(QUERY, 4))
    state, _ = begin(state, ends(9))  # and tasks of batch 5 write, before a power cut takes what Spark noted last
    state, begun = begin(state, ends(15))
    assert plan(state, begun).for_write(WriteId(QUERY, 4)) == (ends(5), True)
    state, begun = begin(finish(state, WriteId(QUERY, 4)), ends(15))
    assert plan(state, begun).for_write(WriteId(QUERY, 5)) == (ends(9), True)


def test_a_topic_that_is_new_to_a_repeated_batch_is_read_back_from_where_it_ended_before_that():
    new, later = {"u": TopicFloors(NEW_ID, {0: 3})}, {"u": TopicFloors(NEW_ID, {0: 8})}
    done = finish(begin(SinkState(), ends(5))[0], WriteId(QUERY, 4))
    state, begun = begin(done, {**ends(9), **new})
    assert plan(state, begun).for_write(WriteId(QUERY, 4)) == ({**ends(5), **new}, True)
    state, begun = begin(state, {**ends(9), **later})
    assert plan(state, begun).for_write(WriteId(QUERY, 4)) == ({**ends(5), **new}, True), "the driver died meanwhile"
    state = finish(state, WriteId(QUERY, 4))
    state, begun = begin(state, later)
    assert plan(state, begun).for_write(WriteId(QUERY, 4)) == ({**ends(5), **new}, True), "and once more"
    assert plan(state, begun).for_write(WriteId(QUERY, 5)) == ({**ends(9), **new}, True), "it may have begun before"


def test_a_batch_that_may_have_begun_under_a_lost_state_is_read_back_from_where_the_one_before_began():
    added = {"u": TopicFloors(NEW_ID, {0: 3})}
    state = finish(begin(SinkState(), ends(5))[0], WriteId(QUERY, 4))
    state, begun = begin(state, {**ends(9), **added}, doubtful=True)
    floors = {**ends(5), "u": TopicFloors(NEW_ID, {})}
    assert (state.pending, state.number, begun) == (floors, 3, True)
    assert plan(state, begun).for_write(WriteId(QUERY, 5)) == (floors, True)
    assert floors["u"].of(NEW_ID, 0) == 0, "nobody knows where a new topic ended"
    assert begin(state, ends(9), doubtful=True) == (state, True), "once it is kept it stays"


def test_a_batch_that_does_not_follow_the_last_finished_one_is_read_back_from_where_that_began():
    state = finish(begin(SinkState(), ends(5))[0], WriteId(QUERY, 4))
    state, begun = begin(state, {**ends(9), "u": TopicFloors(NEW_ID, {0: 3})})
    assert not begun
    assert plan(state, begun).for_write(WriteId(QUERY, 6)) == ({**ends(5), "u": TopicFloors(NEW_ID, {})}, True)
    assert plan(state, True).for_write(WriteId(QUERY, 6)) == (state.pending, True)


def test_a_batch_before_the_last_finished_one_is_refused():
    state = finish(begin(SinkState(), ends(5))[0], WriteId(QUERY, 4))
    with pytest.raises(BatchBehindSink, match=r"Batch 3 .* later ones up to 4: the checkpoint was set back"):
        plan(state, True).for_write(WriteId(QUERY, 3))


def test_another_query_in_the_same_place_is_not_taken_for_the_last_one():
    state = finish(begin(SinkState(), ends(5))[0], WriteId(QUERY, 4))
    state, begun = begin(state, ends(9))
    assert plan(state, begun).for_write(WriteId(OTHER, 0)) == (ends(9), False)
    done = finish(state, WriteId(OTHER, 0)).done
    assert done is not None
    assert (done.query, done.floors) == (OTHER, ends(9))


def test_partitions_added_since_and_topics_made_anew_are_read_from_their_beginning():
    floors = TopicFloors(TOPIC_ID, {0: 5})
    assert [floors.of(TOPIC_ID, 0), floors.of(TOPIC_ID, 1), floors.of(NEW_ID, 0)] == [5, 0, 0]


def test_states_are_kept_beside_the_checkpoint(tmp_path: Path):
    for location in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
        store = StateStore(location)
        state = SinkState(store.load().state.number + 1, ends(5, 7), None)
        store.save(state)
        assert StateStore(location).load() == (state, "")
    assert sorted(path.name for path in (tmp_path / "sinks" / "regency").iterdir()) == ["state-0.json", "state-1.json"]


def test_states_are_kept_in_file_systems_that_only_close_files(tmp_path: Path, monkeypatch):
    elsewhere = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr("regency.pipeline.sink.state._open", lambda _: (elsewhere, "c"))
    for number in (1, 2):
        StateStore("s3://bucket/c").save(SinkState(number, ends(number)))
    assert StateStore("s3://bucket/c").load() == (SinkState(2, ends(2)), "")
    assert sorted(path.name for path in (tmp_path / "c" / "sinks" / "regency").iterdir()) == [
        "state-0.json",
        "state-1.json",
    ]


def damage(path: Path, how: int | None) -> None:
    """Cut a file, flip one of its bits, or remove it."""
    content = path.read_bytes()
    if how is None:
        path.unlink()
    elif how == FLIPPED:
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    else:
        path.write_bytes(content[:how])


FLIPPED = 1 << 20


@pytest.mark.parametrize("how", [0, 1, 20, -1, FLIPPED, None])
@pytest.mark.parametrize("newest", [True, False])
def test_a_file_that_is_damaged_or_lost_leaves_the_other_in_doubt(tmp_path: Path, how: int | None, newest: bool):
    store = StateStore(str(tmp_path))
    for number in (1, 2, 3):
        store.save(SinkState(number, ends(number)))
    damaged = tmp_path / "sinks" / "regency" / f"state-{1 if newest else 0}.json"
    damage(damaged, how)
    state, doubt = store.load()
    assert state == SinkState(2 if newest else 3, ends(2 if newest else 3))
    assert doubt == f"{damaged}: {'lost' if how is None else 'not whole'}."
    for number in (state.number + 1, state.number + 2):
        store.save(SinkState(number))
    assert store.load().doubt == ""


def test_a_file_that_was_set_back_leaves_the_other_in_doubt(tmp_path: Path):
    store = StateStore(str(tmp_path))
    kept = tmp_path / "sinks" / "regency" / "state-0.json"
    for number in (1, 2):
        store.save(SinkState(number))
    old = kept.read_bytes()
    for number in (3, 4, 5):
        store.save(SinkState(number))
    kept.write_bytes(old)
    assert store.load() == (SinkState(5), f"{kept}: older than it was.")


def test_the_first_state_of_all_has_no_other(tmp_path: Path):
    store = StateStore(str(tmp_path))
    assert store.load() == (SinkState(), "")
    store.save(SinkState(1, ends(5)))
    assert store.load() == (SinkState(1, ends(5)), "")


def test_spark_has_its_checkpoint_where_the_state_is(tmp_path: Path):
    store = StateStore(str(tmp_path))
    with pytest.raises(SinkStateUnusable, match=r"metadata does not exist: Spark keeps .* at another place") as refused:
        store.check_place()
    assert "Give checkpointLocation with its scheme" in refused.value.hint
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "metadata").write_text('{"id":"c"}')
    store.check_place()


@pytest.mark.parametrize("left", [b"", b"garbage", b"regency-sink 1 00000000\n{}"])
@pytest.mark.parametrize("files", [1, 2])
def test_files_of_which_none_is_whole_are_no_empty_state(tmp_path: Path, files: int, left: bytes):
    store = StateStore(str(tmp_path))
    for number in range(files):
        store.save(SinkState(number + 1, ends(5)))
    kept = sorted((tmp_path / "sinks" / "regency").iterdir())
    assert len(kept) == files
    for path in kept:
        path.write_bytes(left)
    with pytest.raises(SinkStateUnusable, match="not whole, so that it is not known") as refused:
        store.load()
    assert all(str(path) in refused.value.message for path in kept)
    assert "remove sinks/regency from the checkpoint" in refused.value.hint
    for path in kept:
        path.unlink()
    assert store.load() == (SinkState(), "")


def test_a_state_is_synced_before_it_takes_its_name_and_its_name_after_that(tmp_path: Path, monkeypatch):
    told: list[str] = []
    folder = tmp_path / "c" / "sinks" / "regency"

    def synced(number: int) -> None:
        path = Path(f"/proc/self/fd/{number}").resolve()
        told.append(f"{path.relative_to(tmp_path)}: {sorted(each.name for each in folder.iterdir())}")

    monkeypatch.setattr(os, "fsync", synced)
    for number in (1, 2):
        StateStore(str(tmp_path / "c")).save(SinkState(number))
    assert told == [
        "c/sinks: []",
        "c: []",
        ".: []",
        "c/sinks/regency/.state-1.json.new: ['.state-1.json.new']",
        "c/sinks/regency: ['state-1.json']",
        "c/sinks/regency/.state-0.json.new: ['.state-0.json.new', 'state-1.json']",
        "c/sinks/regency: ['state-0.json', 'state-1.json']",
    ]


def test_a_folder_that_cannot_be_synced_is_no_error(tmp_path: Path, monkeypatch):
    sync = os.fsync

    def refusing(number: int) -> None:
        if Path(f"/proc/self/fd/{number}").resolve().is_dir():
            raise OSError(errno.EINVAL, "no folders")
        sync(number)

    monkeypatch.setattr(os, "fsync", refusing)
    StateStore(str(tmp_path)).save(SinkState(1, ends(5)))
    assert StateStore(str(tmp_path)).load() == (SinkState(1, ends(5)), "")


def test_a_state_of_a_later_release_is_refused(tmp_path: Path):
    store = StateStore(str(tmp_path))
    store.save(SinkState(1, ends(5)))
    path = tmp_path / "sinks" / "regency" / "state-1.json"
    path.write_bytes(path.read_bytes().replace(b"regency-sink 1", b"regency-sink 2", 1))
    with pytest.raises(SinkStateUnusable, match="its version is 2, this release knows 1"):
        store.load()


def test_a_state_that_cannot_be_written_or_read_is_told_with_its_path(tmp_path: Path):
    (tmp_path / "sinks").write_text("a file")
    with pytest.raises(
        SinkStateUnusable, match=r"sinks/regency/state-1\.json: the state of the sink cannot be written"
    ):
        StateStore(str(tmp_path)).save(SinkState(1))


def test_a_location_nobody_can_reach_is_refused():
    with pytest.raises(PipelineOptionInvalid, match="Option checkpointLocation: 'dbfs:/c' cannot be reached"):
        StateStore("dbfs:/c")


@pytest.mark.parametrize("name", ["a%20b", "a b", "ü", "a?b#c", "a%"])
def test_a_location_elsewhere_is_taken_as_hadoop_takes_it(name: str):
    files, path = _open(f"gs://bucket/{name}/c/")
    assert (files.type_name, path) == ("gcs", f"bucket/{name}/c")


def test_a_location_of_this_machine_is_taken_as_hadoop_takes_it():
    written = ["/a/link/../b/", "file:/a/b", "file:///a/b/", "rel/./x", "/a%20b"]
    assert [_open(each)[1] for each in written] == ["/a/b", "/a/b", "/a/b", "rel/x", "/a%20b"]


def test_states_grow_with_random_ids_and_stay_equal(tmp_path: Path):
    store = StateStore(str(tmp_path))
    state = SinkState()
    for batch in range(5):
        state, begun = begin(state, {"t": TopicFloors(uuid4(), {0: batch})})
        assert not begun
        store.save(state)
        state = finish(store.load().state, WriteId(QUERY, batch))
        store.save(state)
        assert store.load() == (state, "")
