"""Reads the sink's golden Parquet files with three readers, and compares what they see with the rows."""

import datetime
import json
import sys

import duckdb
import polars
import pyarrow.parquet

IMAGE = {"day": "date", "id": "int32", "note": "string", "ok": "bool", "price": "double", "tags": "string"}


def image(row, side):
    """An image as its typed columns have it."""
    value = row.get(side)
    if value is None:
        return None
    typed = {name: value.get(name) for name in IMAGE}
    if typed["day"] is not None:
        typed["day"] = datetime.date(1970, 1, 1) + datetime.timedelta(days=typed["day"])
    if typed["tags"] is not None:
        typed["tags"] = json.dumps(typed["tags"], separators=(",", ":"))
    return typed


def expected(text):
    """A row's columns, from its canonical bytes."""
    try:
        row = json.loads(text)
    except ValueError:
        row = {}
    at = row.get("ts_ms")
    if at is not None:
        at = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(milliseconds=at)
    return {
        "op": row.get("op"),
        "ts_ms": at,
        "position": row.get("position"),
        "index": row.get("index"),
        "before": image(row, "before"),
        "after": image(row, "after"),
        "row": text,
    }


def check(reader, path, rows):
    """All rows, in order, with the values that their canonical bytes say."""
    assert len(rows) == 4, f"{reader}: {len(rows)} rows of {path}"
    for row in rows:
        wanted = expected(row["row"])
        assert row == wanted, f"{reader}: {path}:\n  {row}\nwanted\n  {wanted}"


def types(schema):
    """The types of both images, in pyarrow's words."""
    short = {"date32[day]": "date"}
    for side in ("before", "after"):
        found = {field.name: short.get(str(field.type), str(field.type)) for field in schema.field(side).type}
        assert found == IMAGE, found
    assert str(schema.field("ts_ms").type) == "timestamp[ms, tz=UTC]", schema


for path in sys.argv[1:]:
    table = pyarrow.parquet.read_table(path)
    types(table.schema)
    check("pyarrow", path, table.to_pylist())
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    found = connection.execute("select * from read_parquet(?)", [path])
    names = [column[0] for column in found.description]
    check("DuckDB", path, [dict(zip(names, row)) for row in found.fetchall()])
    dear = connection.execute("select count(*) from read_parquet(?) where after.price > 19.95", [path])
    assert dear.fetchone() == (1,)
    check("polars", path, polars.read_parquet(path).to_dicts())
print(f"{len(sys.argv) - 1} files: pyarrow {pyarrow.__version__}, DuckDB {duckdb.__version__}, polars {polars.__version__} agree")
