"""What the deltalake script runs: writers in processes of their own append to one table at the same time.

deltalake commits version N by a conditional put of `_delta_log/N.json`; whoever loses reads the winner's commit and
tries N + 1. Without conditional put on the server's side commits would overwrite each other and rows would be lost.
"""

import multiprocessing
import os
import sys

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

WRITERS, APPENDS, ROWS = 4, 8, 250
TABLE = f"s3://{sys.argv[1]}/table"
OPTIONS = {
    "AWS_ENDPOINT_URL": os.environ["ASSAY_ENDPOINT"],
    "AWS_ACCESS_KEY_ID": os.environ["ASSAY_ACCESS_KEY"],
    "AWS_SECRET_ACCESS_KEY": os.environ["ASSAY_SECRET_KEY"],
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
    "aws_conditional_put": "etag",
}


def rows(writer, append):
    first = (writer * APPENDS + append) * ROWS
    return pa.table({
        "id": pa.array(range(first, first + ROWS), pa.int64()),
        "writer": pa.array([writer] * ROWS, pa.int32()),
        "append": pa.array([append] * ROWS, pa.int32()),
    })


def writer(number, start):
    start.wait()
    for append in range(APPENDS):
        write_deltalake(
            TABLE, rows(number, append), mode="append", storage_options=OPTIONS,
            commit_properties=CommitProperties(max_commit_retries=100, custom_metadata={"by": f"{number}/{append}"}),
        )


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    write_deltalake(TABLE, rows(0, 0).slice(0, 0), storage_options=OPTIONS)
    start = multiprocessing.Barrier(WRITERS)
    writers = [multiprocessing.Process(target=writer, args=(n, start)) for n in range(WRITERS)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    codes = [process.exitcode for process in writers]
    assert codes == [0] * WRITERS, f"writers ended with {codes}"

    table = DeltaTable(TABLE, storage_options=OPTIONS)
    expected_commits = {f"{w}/{a}" for w in range(WRITERS) for a in range(APPENDS)}
    commits = [entry["by"] for entry in table.history() if "by" in entry]
    assert sorted(commits) == sorted(expected_commits), f"commits lost or doubled: {sorted(commits)}"
    assert table.version() == WRITERS * APPENDS, f"version {table.version()}, expected {WRITERS * APPENDS}"
    ids = sorted(table.to_pyarrow_table()["id"].to_pylist())
    assert ids == list(range(WRITERS * APPENDS * ROWS)), f"{len(ids)} rows, expected {WRITERS * APPENDS * ROWS}"
    table.create_checkpoint()
    table.optimize.compact()
    assert sorted(DeltaTable(TABLE, storage_options=OPTIONS).to_pyarrow_table()["id"].to_pylist()) == ids
    print(f"{len(commits)} commits, {len(ids)} rows, version {table.version()}")
