"""What `./dev bench spark-compared` says of two outcomes, of its tables and of a directory of jars."""

from __future__ import annotations

from pathlib import Path

import pytest
from spark_compared.cases_reading import READING
from spark_compared.cases_streaming import STREAMING, Look
from spark_compared.cases_writing import WRITING
from spark_compared.jars import JarsMissing, jars_in
from spark_compared.verdicts import Expected, Got, Outcome, Refused, Verdict, both, gist, mistakes, verdict

ONE, TWO = Got([(1, b"a")]), Got([(1, b"a"), (2, None)])
NONE = Got([])
NO, NEVER = Refused("no such option"), Refused("it is never so")
JARS = (
    "spark-sql-kafka-0-10_2.13-4.2.0.jar",
    "spark-token-provider-kafka-0-10_2.13-4.2.0.jar",
    "kafka-clients-3.9.2.jar",
    "commons-pool2-2.13.1.jar",
)


@pytest.mark.parametrize(
    ("kafka", "regency", "is_so"),
    [
        (TWO, TWO, Verdict.SAME),
        (NONE, NONE, Verdict.EMPTY),
        (NO, NEVER, Verdict.REFUSED),
        (ONE, TWO, Verdict.DIFFERS),
        (ONE, NONE, Verdict.DIFFERS),
        (ONE, NO, Verdict.DIFFERS),
        (NO, NONE, Verdict.DIFFERS),
        (TWO, Got([(1, b"a"), (2, b"")]), Verdict.DIFFERS),
        (TWO, Got(list(reversed(TWO.rows))), Verdict.DIFFERS),
        (ONE, Got(ONE.rows, "another column"), Verdict.DIFFERS),
        (NONE, Got([], "another column"), Verdict.DIFFERS),
        (ONE, Got(ONE.rows, tasks=7), Verdict.SAME),
    ],
)
def test_a_verdict_is_of_rows_and_shape(kafka: Outcome, regency: Outcome, is_so: Verdict) -> None:
    assert verdict(kafka, regency) is is_so
    assert verdict(regency, kafka) is is_so


@pytest.mark.parametrize(
    ("expected", "kafka", "regency"),
    [
        (both(2), TWO, TWO),
        (both(0, "nothing is there"), NONE, NONE),
        (Expected("such option", "never"), NO, NEVER),
        (Expected(1, "never", "ours names it"), ONE, NEVER),
        (Expected("such option", 1, "ours reads on"), NO, ONE),
        (Expected(1, 1, "with spaces", alike=False), ONE, Got([(2, b"a")])),
        (both(1, "empty tasks", tasks=(3, 1)), Got(ONE.rows, tasks=3), Got(ONE.rows, tasks=1)),
    ],
)
def test_what_the_table_says_is_no_mistake(expected: Expected, kafka: Outcome, regency: Outcome) -> None:
    assert mistakes(expected, kafka, regency) == []


@pytest.mark.parametrize(
    ("expected", "kafka", "regency", "told"),
    [
        (both(2), ONE, ONE, "kafka should give 2 rows, and gives 1 rows"),
        (both(2), NONE, NONE, "the verdict should be same, and is same, both empty"),
        (both(2), TWO, NO, "regency should give 2 rows, and refuses: no such option"),
        (Expected("such option", "never"), NO, NO, "regency should refuse with 'never', and refuses: no such option"),
        (Expected("such option", "never"), NO, ONE, "regency should refuse with 'never', and gives 1 rows"),
        (both(2), TWO, Got([(1, b"a"), (3, None)]), "1 rows only kafka has, such as (2, None)"),
        (both(2), TWO, Got(TWO.rows, "binary"), "kafka has , regency binary"),
        (both(2), TWO, Got(list(reversed(TWO.rows))), "the same rows in another order"),
        (Expected(1, 1, "spaces", alike=False), ONE, ONE, "the verdict should be differs, and is same"),
        (both(1), ONE, Got(ONE.rows, tasks=2), "tasks should be as many, and are (0, 2)"),
        (both(1, "cut", tasks=(1, 2)), ONE, ONE, "tasks should be (1, 2), and are (0, 0)"),
    ],
)
def test_what_is_not_as_the_table_says_is_told(expected: Expected, kafka: Outcome, regency: Outcome, told: str) -> None:
    assert told in mistakes(expected, kafka, regency)


@pytest.mark.parametrize(
    "words",
    [
        {"kafka": 0, "regency": 0},
        {"kafka": 3, "regency": "no"},
        {"kafka": 3, "regency": 3, "alike": False},
        {"kafka": 3, "regency": 3, "tasks": (1, 2)},
    ],
)
def test_a_table_has_to_say_why(words: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="does not say why"):
        Expected(**words)  # type: ignore[arg-type]


def test_every_case_has_a_name_of_its_own_and_what_refuses_says_how() -> None:
    names = [case.name for table in (READING, STREAMING, WRITING) for case in table]
    assert len(names) == len(set(names))
    for table in (READING, STREAMING, WRITING):
        for case in table:
            assert case.expected.kafka != "", case.name
            assert case.expected.regency != "", case.name


def test_both_directions_of_a_checkpoint_are_cases() -> None:
    assert {case.checkpoint_of for case in STREAMING} == {None, "kafka", "regency"}
    assert {case.look for case in STREAMING} == set(Look)


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("minPartitions must be positive", "minPartitions must be positive"),
        ("An error occurred while calling o5.save.\n: java.lang.Oh: no\n\tat x", "java.lang.Oh: no"),
        ("Job aborted: Lost task 0.0 (TID 1) (host executor driver): java.lang.Oh: no\n\tat x", "java.lang.Oh: no"),
        ("[STREAM_FAILED] Query [id = a] terminated with exception: no topic\n=== Streaming Query", "no topic"),
        (
            "[SOURCE_ERROR] Failed\n  regency/x.py\nregency.pipeline.errors.Invalid: Option x: no. Remove it.\nSTATE",
            "Option x: no. Remove it.",
        ),
    ],
)
def test_the_sentence_of_an_error_is_found_in_what_spark_says(message: str, sentence: str) -> None:
    assert gist(message) == sentence


def _folder(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).touch()
    return folder


def test_the_jars_are_found_beside_others(tmp_path: Path) -> None:
    _folder(tmp_path, *JARS, "kafka-clients-tests-3.9.2.jar", "other.jar", "pyspark-4.2.0.tar.gz")
    assert [path.name for path in jars_in(tmp_path, "4.2.0")] == list(JARS)


def test_missing_jars_are_named_by_their_coordinates(tmp_path: Path) -> None:
    with pytest.raises(JarsMissing) as raised:
        jars_in(_folder(tmp_path, *JARS[:3]), "4.3.0")
    said = str(raised.value)
    assert "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0" in said
    assert "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.3.0" in said
    assert "org.apache.commons:commons-pool2 (the version that the POM of" in said
    assert "kafka-clients" not in said
    assert "://" not in said


def test_two_versions_of_a_jar_are_refused(tmp_path: Path) -> None:
    with pytest.raises(JarsMissing, match=r"kafka-clients in several versions: kafka-clients-3\.9\.1\.jar, kafka-cl"):
        jars_in(_folder(tmp_path, *JARS, "kafka-clients-3.9.1.jar"), "4.2.0")


def test_a_directory_that_is_not_there_lacks_all(tmp_path: Path) -> None:
    with pytest.raises(JarsMissing, match=r"missing: org\.apache\.spark:spark-sql-kafka"):
        jars_in(tmp_path / "no", "4.2.0")
