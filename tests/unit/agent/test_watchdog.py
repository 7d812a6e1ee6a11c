from __future__ import annotations

from regency.broker_agent.process.watchdog import Silence


def test_silence_grows_while_the_loop_does_not_show_itself_and_ends_when_it_does() -> None:
    silence = Silence()
    looks = [(7, 1_000), (7, 2_000), (7, 3_000), (8, 4_000), (8, 5_000)]
    assert [silence.look(shown, now_ms) for shown, now_ms in looks] == [0, 1_000, 2_000, 0, 1_000]


def test_a_process_that_was_paused_is_not_one_whose_loop_hangs() -> None:
    silence = Silence()
    silence.look(7, 1_000)
    assert silence.look(7, 3_600_000) == 2_000, "an hour in which nothing ran, this look neither"
