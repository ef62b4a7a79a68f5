"""Land a DataFrame of change events from any Spark job.

    python examples/write_stream.py EVENTS_DIR file:///tmp/out

EVENTS_DIR holds Parquet files of the events schema (docs/events.md); any streaming DataFrame of that schema will do.
"""

import os
import sys

from pyspark.sql import DataFrame, SparkSession

import tidegate
from tidegate.events import EVENTS_DDL
from tidegate.observe.status import Status


def land(spark: SparkSession, events_dir: str, sink_uri: str) -> Status:
    def open_source(position: tidegate.Position | None) -> DataFrame:
        # A source that can seek starts at position.offset. This one cannot, so it replays everything, and Tidegate
        # drops what is durable already.
        return spark.readStream.schema(EVENTS_DDL).parquet(events_dir)

    handle = tidegate.write_stream(open_source, sink_uri, finite=True, flush_interval="2s", file_size="16MiB")
    handle.await_termination()
    return handle.status()


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.master("local[2,4]").config("spark.scheduler.mode", "FAIR").getOrCreate()
    print(land(session, sys.argv[1], sys.argv[2]))
