"""What an exception of Spark says: errors of other processes come as text, and their type must not be lost."""

from __future__ import annotations

import pytest

from tidegate import errors
from tidegate.driver.causes import cause_of, sentence_of
from tidegate.driver.jobs import Jobs
from tidegate.errors import BadEvents, BadSetting, StoreRefused, StoreUnavailable, TidegateError, error_named
from tidegate.executor.rows import SchemaPlan

SENTENCE = "shop.orders, commit-ts 7, column 'id': the value is not a whole number"
# As PySpark 4.3 words them; paths are shortened.
IN_A_TASK = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "ingest.py", line 19, in bad
    raise BadEvents(text) from exc
tidegate.errors.BadEvents: {sentence}
"""
STAGE = """Job aborted due to stage failure: Task 0 in stage 4.0 failed 4 times, most recent failure: Lost task 0.3 in \
stage 4.0 (TID 9) (host executor driver): org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception \
was thrown from the Python worker: Traceback (most recent call last):
  File "ingest.py", line 19, in bad
    raise BadEvents(text) from exc
tidegate.format.bad_values.BadRows: {sentence}
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1097)
\tat scala.collection.Iterator$$anon$10.hasNext(Iterator.scala:611)

Driver stacktrace:"""
PY4J = """An error occurred while calling o71.collectToPython.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:53)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "ingest.py", line 19, in bad
tidegate.errors.BadEvents: {sentence}
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1097)
\t... 1 more
"""
IN_THE_SOURCE = """[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform \
latestOffset: Traceback (most recent call last):
  File "python_streaming_source_runner.py", line 281, in main
    latest_offset_admission_func(reader, infile, outfile)
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
tidegate.errors.BadEvents: {sentence}
 SQLSTATE: 38000
=== Streaming Query ===
Identifier: [id = 1cf16abc, runId = b18bbc5a]
Current State: ACTIVE
"""
# Spark's own cleaning up fails when a reader could not be made.
BEFORE_ANOTHER = """[PYTHON_DATA_SOURCE_ERROR] Failed to plan Python data source initialize source: Traceback (most \
recent call last):
  File "datasource.py", line 37, in __init__
tidegate.errors.BadEvents: {sentence}

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "python_streaming_source_runner.py", line 295, in main
    reader.stop()
UnboundLocalError: cannot access local variable 'reader' where it is not associated with a value
 SQLSTATE: 38000
"""
AS_A_CAUSE = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "clientserver.py", line 644, in _call_proxy
pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "mine.py", line 1, in read
ValueError: invalid literal

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "mine.py", line 2, in read
tidegate.errors.BadEvents: {sentence}

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "mine.py", line 9, in read
RuntimeError: wrapped
"""
TEXTS = {
    "task": IN_A_TASK, "stage": STAGE, "py4j": PY4J, "source": IN_THE_SOURCE, "cleaning-up": BEFORE_ANOTHER,
    "chained": AS_A_CAUSE,
}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("sentence", [SENTENCE, f"{SENTENCE}\nand a second line\n  and a third"])
def test_an_error_of_ours_in_the_text_of_another_process_is_that_error_again(text: str, sentence: str) -> None:
    error = RuntimeError(text.format(sentence=sentence))
    cause = cause_of(error)
    assert type(cause) is BadEvents
    assert str(cause) == " ".join(line.strip() for line in sentence.splitlines())
    assert sentence_of(error) == str(cause)


def test_an_error_of_ours_on_the_driver_stays_as_it_is() -> None:
    error = StoreUnavailable("the store sleeps")
    assert cause_of(error) is error
    wrapper = RuntimeError("something of Spark")
    wrapper.__cause__ = error
    assert cause_of(wrapper) is error


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (IN_A_TASK.replace("tidegate.errors.BadEvents: {sentence}", "ZeroDivisionError: division by zero"),
         "ZeroDivisionError: division by zero"),
        (IN_A_TASK.replace("tidegate.errors.BadEvents: {sentence}", "KeyboardInterrupt"), "KeyboardInterrupt"),
        (BEFORE_ANOTHER.replace("tidegate.errors.BadEvents: {sentence}", "TypeError: abstract method read"),
         "TypeError: abstract method read"),
        ("An error occurred while calling o7.load.\n: java.io.IOException: no space\n\tat a.b(C.java:1)",
         "java.io.IOException: no space"),
        ("Job aborted\n\tat a.b(C.java:1)\nCaused by: java.lang.X: one\n\tat d\nCaused by: java.io.EOFException: two",
         "java.io.EOFException: two"),
        ("[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03",
         "[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03"),
        ("", "RuntimeError"),
    ],
)  # fmt: skip
def test_of_an_error_that_is_not_ours_the_last_cause_is_told(text: str, sentence: str) -> None:
    error = RuntimeError(text)
    assert cause_of(error) is error
    assert sentence_of(error) == sentence


def test_an_error_of_the_same_name_that_is_not_ours_stays_what_it_is() -> None:
    error = RuntimeError(IN_A_TASK.format(sentence=SENTENCE).replace("tidegate.errors.", "othergate.errors."))
    assert cause_of(error) is error


def test_every_error_of_the_tree_is_found_by_its_name() -> None:
    tree = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TidegateError)]
    assert len(tree) > 10
    assert [error_named(kind.__name__) for kind in tree] == tree
    assert error_named("FencedOff") is TidegateError, "a class outside of the tree is what it inherits from"
    assert error_named("ValueError") is None


@pytest.mark.parametrize("raised", [BadSetting, BadEvents])
def test_a_land_job_that_no_retry_can_mend_ends_with_its_sentence(raised: type[TidegateError]) -> None:
    def lost(*_: object) -> None:
        raise RuntimeError(STAGE.replace("format.bad_values.BadRows", f"errors.{raised.__name__}").format(sentence="x"))

    jobs = Jobs(lost, lost)
    with pytest.raises(raised, match=r"^x$"):
        jobs.land_schemas([SchemaPlan(0, [])], None)  # type: ignore[arg-type]


@pytest.mark.parametrize("raised", [StoreRefused, StoreUnavailable])
def test_a_land_job_that_the_store_fails_is_retried(raised: type[TidegateError]) -> None:
    def lost(*_: object) -> None:
        raise RuntimeError(STAGE.replace("format.bad_values.BadRows", f"errors.{raised.__name__}").format(sentence="x"))

    jobs = Jobs(lost, lost)
    receipts = jobs.land_schemas([SchemaPlan(0, [])], None)  # type: ignore[arg-type]
    assert receipts["outcome"].to_pylist() == ["unfinished"]
    assert receipts["error"].to_pylist() == ["the landing was lost: x"]
