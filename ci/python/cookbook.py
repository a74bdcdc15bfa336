"""The situations of server/docs/faults.md in Python; the page shows each function as it stands here.

Runs against the server that AWS_ENDPOINT_URL names, which has buckets "data" and "versions", and against a
racing one that ASSAY_RACING_ENDPOINT names; prints a line for each situation and ends with exit code 1 at the first
that is not as it should be.
"""

import json
import os
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, FlexibleChecksumError

s3 = boto3.client("s3")


def control(method, path, body=None):
    request = urllib.request.Request(
        f"{os.environ['AWS_ENDPOINT_URL']}/_assay/{path}", data=body and body.encode(), method=method
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


@contextmanager
def fault(rule):
    control("POST", "faults", f"name=this {rule}")
    try:
        yield lambda: control("GET", "faults")["faults"][-1]
    finally:
        control("DELETE", "faults")


def code(call, **arguments):
    try:
        call(Bucket="data", **arguments)
    except ClientError as error:
        return error.response["Error"]["Code"]
    except BotoCoreError:
        return "no answer"
    return "none"


def read(key):
    return s3.get_object(Bucket="data", Key=key)["Body"].read()


def impatient(seconds):
    return boto3.client("s3", config=Config(read_timeout=seconds))


def upload(key, parts):
    upload_id = s3.create_multipart_upload(Bucket="data", Key=key)["UploadId"]
    done = []
    for number in range(1, parts + 1):
        part = s3.upload_part(
            Bucket="data", Key=key, UploadId=upload_id, PartNumber=number, Body=b"x" * 5 * 1024 * 1024
        )
        done.append({"PartNumber": number, "ETag": part["ETag"]})
    return {"Key": key, "UploadId": upload_id, "MultipartUpload": {"Parts": done}}


def applied_then_lost():
    with fault("operation=PutObject condition=If-None-Match nth=1 effect=lose-answer") as state:
        created = code(s3.put_object, Key="lost", Body=b"owner=me", IfNoneMatch="*")
        assert created == "PreconditionFailed"  # the retry met the first attempt's object
        assert read("lost") == b"owner=me"  # so the name in it decides, not the 412
        assert (state()["seen"], state()["fired"]) == (2, 1)


def applied_late():
    with fault("operation=PutObject condition=If-None-Match effect=late until=lifted"):
        created = code(impatient(0.5).put_object, Key="late", Body=b"owner=me", IfNoneMatch="*")
        assert created == "no answer"  # each of three attempts took too long
        assert code(s3.head_object, Key="late") == "404"  # and nothing is there, yet
    s3.get_waiter("object_exists").wait(Bucket="data", Key="late", WaiterConfig={"Delay": 1})
    assert read("late") == b"owner=me"  # absence was no proof


def not_applied():
    with fault("operation=PutObject condition=If-None-Match effect=drop") as state:
        created = code(s3.put_object, Key="dropped", Body=b"owner=me", IfNoneMatch="*")
        assert created == "no answer"  # as if it were applied and lost
        assert state()["fired"] == 3  # three attempts by default
    assert code(s3.put_object, Key="dropped", Body=b"owner=me", IfNoneMatch="*") == "none"


def second_racer_gets_409():
    with ThreadPoolExecutor() as racers, fault("contended=true effect=refuse code=ConditionalRequestConflict"):
        with fault("condition=If-None-Match nth=1 effect=delay until=lifted") as slow:
            first = racers.submit(code, s3.put_object, Key="raced", Body=b"first", IfNoneMatch="*")
            while slow()["fired"] == 0:
                time.sleep(0.01)
            second = code(s3.put_object, Key="raced", Body=b"second", IfNoneMatch="*")
        assert second == "ConditionalRequestConflict"  # which says nothing about who holds the lock
        assert first.result() == "none"


def lock_lost_to_a_racing_vendor():
    # assay-server --deviate race-create-put=4000
    racing = boto3.client("s3", endpoint_url=os.environ["ASSAY_RACING_ENDPOINT"])
    with ThreadPoolExecutor() as racers:
        races = [racers.submit(code, racing.put_object, Key="lock", Body=who, IfNoneMatch="*") for who in (b"1", b"2")]
        assert [race.result() for race in races] == ["none", "none"]  # each was told that the lock is its own
    owner = racing.get_object(Bucket="data", Key="lock")["Body"].read()
    assert owner in (b"1", b"2")  # and one of them is not in it


def outage_while_recovering():
    s3.put_object(Bucket="data", Key="log/1", Body=b"one")
    with fault("effect=refuse code=ServiceUnavailable"):
        assert code(s3.list_objects_v2, Prefix="log/") == "ServiceUnavailable"  # and that is not an empty log
    assert s3.list_objects_v2(Bucket="data", Prefix="log/")["KeyCount"] == 1


def slow_down_burst():
    with fault("operation=PutObject first=2 effect=refuse code=SlowDown retry-after=1") as state:
        s3.put_object(Bucket="data", Key="slow", Body=b"v")  # the third attempt
        assert (state()["seen"], state()["fired"]) == (3, 2)


def conflict_on_create():
    with fault("operation=PutObject condition=If-None-Match nth=1 effect=refuse code=ConditionalRequestConflict"):
        created = code(s3.put_object, Key="conflict", Body=b"owner=me", IfNoneMatch="*")
        assert created == "ConditionalRequestConflict"  # not retried for you
        created = code(s3.put_object, Key="conflict", Body=b"owner=me", IfNoneMatch="*")
        assert created == "none"  # nobody held the lock


def complete_says_200_and_fails():
    done = upload("completed", 1)
    with fault("operation=CompleteMultipartUpload nth=1 effect=error-document code=InternalError") as state:
        assert code(s3.complete_multipart_upload, **done) == "none"  # boto3 reads the document and repeats it
        assert state()["seen"] == 2


def no_such_upload_though_it_landed():
    done = upload("landed", 2)
    with fault("operation=CompleteMultipartUpload effect=fail-after code=NoSuchUpload"):
        assert code(s3.complete_multipart_upload, **done) == "NoSuchUpload"
    head = s3.head_object(Bucket="data", Key="landed")  # the object tells what became of it
    assert head["ContentLength"] == 10 * 1024 * 1024 and head["ETag"].endswith('-2"')


def stale_list_after_write():
    with fault("operation=ListObjectsV2 first=1 effect=stale"):  # what is there now is what the list shows
        s3.put_object(Bucket="data", Key="stale/1", Body=b"one")
        assert s3.list_objects_v2(Bucket="data", Prefix="stale/")["KeyCount"] == 0
        assert read("stale/1") == b"one"  # by its name it is there
        assert s3.list_objects_v2(Bucket="data", Prefix="stale/")["KeyCount"] == 1


def list_without_the_newest_key():
    for key in ["newest/1", "newest/3", "newest/2"]:
        s3.put_object(Bucket="data", Key=key, Body=b"entry")
    with fault("operation=ListObjectsV2 effect=omit-newest"):
        page = s3.list_objects_v2(Bucket="data", Prefix="newest/")
    keys = [entry["Key"] for entry in page["Contents"]]
    assert keys == ["newest/1", "newest/3"]  # a gap, where the last key written is not the last in order


def truncated_list_without_a_token():
    for key in ["cut/1", "cut/2", "cut/3", "cut/4"]:
        s3.put_object(Bucket="data", Key=key, Body=b"entry")
    with fault("operation=ListObjectsV2 nth=1 effect=truncate"):
        first = s3.list_objects_v2(Bucket="data", Prefix="cut/")
        assert first["IsTruncated"] and "NextContinuationToken" not in first
        last = first["Contents"][-1]["Key"]
        rest = s3.list_objects_v2(Bucket="data", Prefix="cut/", StartAfter=last)  # needs no token
    assert (first["KeyCount"], rest["KeyCount"]) == (2, 2)


def slow_first_byte():
    s3.put_object(Bucket="data", Key="first-byte", Body=b"v")
    with fault("operation=GetObject nth=1 effect=first-byte ms=60000"):
        body = impatient(2).get_object(Bucket="data", Key="first-byte")["Body"]  # 200, and then nothing
        try:
            raise AssertionError(body.read())
        except BotoCoreError:
            assert read("first-byte") == b"v"  # a second request beats waiting for the first


def stalled_upload():
    with fault("operation=PutObject nth=1 effect=stop-reading at=1000"):
        impatient(2).put_object(Bucket="data", Key="stalled", Body=b"r" * 100_000)  # the second attempt
    assert len(read("stalled")) == 100_000


def cut_download_and_range_resume():
    s3.put_object(Bucket="data", Key="cut", Body=b"first half, second half")
    with fault("operation=GetObject nth=1 effect=cut at=12"):
        answer = s3.get_object(Bucket="data", Key="cut")
        got = b""
        try:
            while byte := answer["Body"].read(1):
                got += byte
        except BotoCoreError:
            assert got == b"first half, "
        rest = s3.get_object(Bucket="data", Key="cut", Range=f"bytes={len(got)}-", IfMatch=answer["ETag"])
        assert got + rest["Body"].read() == b"first half, second half"


def corrupt_bytes():
    s3.put_object(Bucket="data", Key="corrupt", Body=b"precious")  # boto3 sends a CRC of it
    with fault("operation=GetObject nth=1 effect=corrupt"):
        try:
            raise AssertionError(read("corrupt"))
        except FlexibleChecksumError:  # and checks it when reading
            assert read("corrupt") == b"precious"


def clock_skew():
    with fault("operation=PutObject effect=refuse code=RequestTimeTooSkewed"):
        assert code(s3.put_object, Key="skewed", Body=b"v") == "RequestTimeTooSkewed"
    control("PUT", "clock", '{"offset-ms": 3600000}')  # now the server's clock is an hour ahead in earnest
    told = code(s3.put_object, Key="skewed", Body=b"v")
    control("PUT", "clock", '{"offset-ms": 0}')
    assert told == "RequestTimeTooSkewed"


def late_write_over_a_newer_one():
    with fault("operation=PutObject nth=1 effect=late until=lifted"):
        impatient(1).put_object(Bucket="data", Key="config", Body=b"old")  # by its second attempt
        s3.put_object(Bucket="data", Key="config", Body=b"new")
    deadline = time.monotonic() + 20
    while read("config") == b"new" and time.monotonic() < deadline:
        time.sleep(0.05)  # the first one lands
    assert read("config") == b"old"  # IfMatch on every write would have refused it


def acknowledged_but_lost():
    with fault("operation=PutObject nth=1 effect=forget"):
        assert s3.put_object(Bucket="data", Key="forgotten", Body=b"v")["ETag"]  # 200
        assert code(s3.head_object, Key="forgotten") == "404"  # so what must not be lost is read back


def duplicate_delivery():
    with fault("operation=PutObject nth=1 effect=twice"):
        s3.put_object(Bucket="versions", Key="event", Body=b"v")
    versions = s3.list_object_versions(Bucket="versions")["Versions"]
    assert len(versions) == 2  # one request by the client's count


def one_client_only():
    worker_2 = boto3.client("s3", config=Config(user_agent_appid="worker-2"))
    with fault("user-agent=*app/worker-2* effect=refuse code=AccessDenied"):
        assert code(worker_2.put_object, Key="whose", Body=b"v") == "AccessDenied"
        assert code(s3.put_object, Key="whose", Body=b"v") == "none"  # everyone else goes on


def one_part_of_an_upload_fails():
    with fault("operation=UploadPart part-number=2 nth=1 effect=refuse code=InternalError") as state:
        done = upload("parts", 2)  # part 2 is sent twice
        assert (state()["seen"], state()["fired"]) == (2, 1)
        assert code(s3.complete_multipart_upload, **done) == "none"


def outage_for_a_time():
    with fault("ttl-ms=1000 effect=refuse code=ServiceUnavailable"):
        failed = 0
        while code(s3.put_object, Key="outlived", Body=b"v") != "none":
            failed += 1  # three attempts each, with pauses in between
        assert failed < 100
        assert control("GET", "faults")["faults"] == []  # it died by itself


SITUATIONS = [
    applied_then_lost,
    applied_late,
    not_applied,
    second_racer_gets_409,
    lock_lost_to_a_racing_vendor,
    outage_while_recovering,
    slow_down_burst,
    conflict_on_create,
    complete_says_200_and_fails,
    no_such_upload_though_it_landed,
    stale_list_after_write,
    list_without_the_newest_key,
    truncated_list_without_a_token,
    slow_first_byte,
    stalled_upload,
    cut_download_and_range_resume,
    corrupt_bytes,
    clock_skew,
    late_write_over_a_newer_one,
    acknowledged_but_lost,
    duplicate_delivery,
    one_client_only,
    one_part_of_an_upload_fails,
    outage_for_a_time,
]

if __name__ == "__main__":
    for situation in (s for s in SITUATIONS if sys.argv[1:] in ([], [s.__name__])):
        print(situation.__name__, flush=True)
        situation()
