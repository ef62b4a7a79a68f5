"""Remote sinks: their URIs, the keys to reach them, and that none of their secrets is ever shown."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from urllib.parse import quote

import pytest

from tidegate.config.settings import changefeed_id, effective, load_settings
from tidegate.config.store_keys import STORE_KEYS
from tidegate.errors import BadSetting
from tidegate.executor.jobs import LandJob, LandOptions
from tidegate.executor.segments import FileSegments
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.layout import PathOptions
from tidegate.storage.access import bucket_and_prefix
from tidegate.storage.store import open_store
from tidegate.tools.summary import Summary
from tidegate.wording import redacted

SECRET = "hunter2hunter2/+hg=="
SECRETS = {
    "s3": {"access-key": "hunter2id", "secret-access-key": SECRET, "session-token": SECRET},
    "gs": {"credentials-file": "/keys/google.json"},
    "azblob": {"account-name": "me", "account-key": SECRET},
}


def uri(scheme: str, **more: str) -> str:
    keys = SECRETS[scheme] | {key.replace("_", "-"): value for key, value in more.items()}
    return f"{scheme}://lake/cdc?" + "&".join(f"{key}={quote(value, safe='')}" for key, value in keys.items())


def refusal(text: str) -> str:
    with pytest.raises(BadSetting) as caught:
        load_settings(text)
    assert "hunter2" not in str(caught.value)
    return str(caught.value)


# The URI


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("s3://lake/cdc", "s3://lake/cdc"),
        ("S3://lake/cdc/?region=eu-west-1", "s3://lake/cdc"),
        ("s3://lake", "s3://lake"),
        ("s3://lake/", "s3://lake"),
        ("s3://lake/a b/é", "s3://lake/a%20b/%C3%A9"),
        ("s3://lake/a%20b/%C3%A9", "s3://lake/a%20b/%C3%A9"),
        ("gs://lake/cdc", "gs://lake/cdc"),
        ("gcs://lake/cdc", "gs://lake/cdc"),
        ("azblob://lake/cdc", "azblob://lake/cdc"),
        ("azure://lake/cdc", "azblob://lake/cdc"),
    ],
)
def test_one_place_has_one_sink_uri_however_it_is_spelled(text: str, plain: str) -> None:
    settings = load_settings(text)
    assert settings.sink_uri == plain
    assert settings.scheme == plain.partition(":")[0]
    assert settings.changefeed_id == changefeed_id(plain)


def test_the_bucket_and_the_prefix_are_read_back() -> None:
    assert bucket_and_prefix("s3://lake/a%20b/%C3%A9%25") == ("lake", "a b/é%")
    assert bucket_and_prefix("s3://lake") == ("lake", "")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("s3://", "the sink URI names no bucket: write s3://bucket/prefix"),
        ("s3:///prefix", "the sink URI names no bucket"),
        ("azure://?account-name=x", "the sink URI names no container: write azblob://container/prefix"),
        ("s3://me:hunter2@lake/p", "give keys as options (access-key, secret-access-key) or in the environment"),
        ("s3://me:hunter2/x@lake/p", "has a user or password before the bucket"),
        ("s3://hunter2@lake/p", "has a user or password before the bucket"),
        ("azblob://me:hunter2@lake", "give keys as options (account-key or sas-token)"),
        ("s3://minio:9000/lake", "is a host and port: write s3://bucket/prefix?endpoint=http://minio:9000"),
        ("s3://la ke/p", "'la ke' in the sink URI is not a name of a bucket"),
        ("s3://lake/a//b", "has an empty level, '.' or '..'"),
        ("s3://lake/a/../b", "has an empty level, '.' or '..'"),
        ("s3://lake/p#1", "write it as %23"),
    ],
)
def test_a_bad_remote_uri_is_refused_with_the_remedy(text: str, sentence: str) -> None:
    assert sentence in refusal(text)


# The keys


@pytest.mark.parametrize("scheme", ["s3", "gs", "azblob"])
def test_keys_may_be_written_with_either_dash(scheme: str) -> None:
    spelled = uri(scheme)
    underscored = spelled.replace("-key", "_key").replace("-token", "_token").replace("-name", "_name")
    assert load_settings(underscored.replace("-file", "_file").replace("secret-", "secret_")).access == (
        load_settings(spelled).access
    )
    assert dict(load_settings(spelled).access.keys) == SECRETS[scheme]


def test_a_key_in_both_spellings_is_there_twice() -> None:
    assert "'region' is given twice" in refusal("s3://lake?region=a&region=b")
    assert "'access-key' is given twice" in refusal("s3://lake?access-key=hunter2&access_key=hunter2")


def test_a_plus_that_was_not_escaped_is_a_plus() -> None:
    settings = load_settings("s3://lake?access-key=id&secret-access-key=a+b/c%2Bd==")
    assert settings.access.get("secret-access-key") == "a+b/c+d=="


def test_an_empty_value_counts_as_not_given() -> None:
    assert load_settings("s3://lake?endpoint=&region=").access == load_settings("s3://lake").access


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("s3://lake?acl=public-read", "acl in the sink URI is not supported: the client cannot set one"),
        ("s3://lake?role-arn=arn:aws:iam::1:role/r", "role-arn in the sink URI is not supported: no role is assumed"),
        ("s3://lake?external_id=hunter2", "external_id in the sink URI is not supported"),
        ("gs://lake?predefined-acl=private", "predefined-acl in the sink URI is not supported"),
        ("azblob://lake?encryption-scope=s", "encryption-scope in the sink URI is not supported"),
        ("s3://lake?endpoint=minio:9000", "endpoint must be a URL such as https://host:9000 (in the sink URI)"),
        ("s3://lake?endpoint=http://me:hunter2@minio", "endpoint must have no user, password or query"),
        ("azblob://lake?endpoint=https://h/c?sig=hunter2", "endpoint must have no user, password or query"),
        ("s3://lake?force-path-style=maybe", "force-path-style must be true or false"),
        ("s3://lake?sse=rot13", "sse must be AES256, aws:kms or aws:kms:dsse"),
        ("s3://lake?sse-kms-key-id=hunter2", "sse-kms-key-id in the sink URI needs sse=aws:kms"),
        ("s3://lake?access-key=hunter2", "access-key and secret-access-key in the sink URI go together"),
        ("s3://lake?session-token=hunter2", "session-token in the sink URI needs access-key"),
        ("azblob://lake?account-key=hunter2", "need account-name beside them"),
        ("azblob://lake?account-name=a&account-key=hunter2&sas-token=hunter2", "are both in the sink URI: keep one"),
        ("azblob://lake?endpoint=http://h&encryption-key=hunter2", "needs an https endpoint"),
        ("s3://lake?acess-key=hunter2", "unknown option 'acess-key' in the sink URI; did you mean 'access-key'?"),
        ("s3://lake?account-key=hunter2", "unknown option 'account-key' in the sink URI"),
        ("file:///data?access-key=hunter2", "unknown option 'access-key' in the sink URI"),
        ("azblob://lake?sas-token=sv=2021&sp=rw&sig=hunter2", "is cut off at its first '&': write & as %26"),
    ],
)
def test_a_key_that_cannot_be_honoured_is_refused_with_the_reason(text: str, sentence: str) -> None:
    assert sentence in refusal(text)


def test_ticdc_s_providers_decide_how_requests_name_the_bucket() -> None:
    alibaba = load_settings("s3://lake?provider=alibaba")
    assert (alibaba.access.get("force-path-style"), alibaba.notes) == ("false", ())
    minio = load_settings("s3://lake?provider=minio")
    assert (minio.access.get("force-path-style"), minio.notes) == (
        None,
        ("provider=minio in the sink URI changes nothing",),
    )


def test_other_options_stand_beside_the_keys() -> None:
    settings = load_settings("s3://lake/p?region=eu-west-1&file-size=16MiB&worker-count=3")
    assert (settings.file_size_bytes, settings.worker_count) == (16 << 20, 3)
    assert settings.access.get("region") == "eu-west-1"


def test_the_changefeed_id_follows_the_place_and_no_secret() -> None:
    plain = load_settings("s3://lake/cdc").changefeed_id
    assert plain.startswith("s3-lake-cdc-")
    assert load_settings(uri("s3")).changefeed_id == load_settings(uri("s3", secret_access_key="other")).changefeed_id
    assert load_settings(uri("s3")).changefeed_id == plain
    assert load_settings("s3://lake/cdc?endpoint=http://h:1").changefeed_id != plain
    assert len({load_settings(f"azblob://lake?account-name={name}").changefeed_id for name in "ab"}) == 2


# Secrets


@pytest.mark.parametrize("scheme", ["s3", "gs", "azblob"])
def test_no_secret_is_shown_anywhere(scheme: str) -> None:
    settings = load_settings(uri(scheme, endpoint="https://store:9000"))
    options = LandOptions(PathOptions(), CsvOptions(), settings.sink_uri, settings.access, open_store)
    job = LandJob(options, {}, {}, FileSegments())
    shown = effective(settings)
    for text in (repr(settings), str(settings), repr(settings.access), repr(job), repr(shown), str(settings.notes)):
        assert "hunter2" not in text
    assert ("endpoint", "https://store:9000") in shown
    assert "in the sink URI" in dict(shown)["credentials"]
    assert "hunter2" not in settings.sink_uri + settings.changefeed_id
    assert "hunter2" not in repr(dataclasses.replace(settings, worker_count=2))
    assert pickle.loads(pickle.dumps(settings)).access == settings.access, "executors need it"


def test_credentials_that_are_not_in_the_uri_are_said_to_come_from_elsewhere() -> None:
    shown = dict(effective(load_settings("s3://lake?region=eu-west-1")))
    assert (shown["region"], shown["credentials"]) == ("eu-west-1", "environment or platform")
    assert "credentials" not in dict(effective(load_settings("file:///data/out")))


@pytest.mark.parametrize("scheme", ["s3", "gs", "azblob"])
def test_an_opened_store_shows_no_secret(scheme: str, tmp_path: Path) -> None:
    file = tmp_path / "hunter2.json"
    file.write_text('{"disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}')
    more = {"credentials_file": str(file)} if scheme == "gs" else {}
    settings = load_settings(uri(scheme, **more))
    store = open_store(settings.sink_uri, settings.access)
    assert "hunter2" not in f"{store!r} {vars(store)['_client']!r}"


def test_the_next_commands_of_a_run_hide_secrets() -> None:
    figures = {
        "flush_reasons": {}, "file_size_ratio": {}, "rows": 1, "seconds": 1.0, "rows_per_s": 1.0, "bytes": 1,
        "mib_per_s": 1.0, "files": 1, "file_size_bytes": 1, "checkpoint_ts": 1,
    }  # fmt: skip
    text = Summary(figures).text("tidegate", redacted(uri("s3")))
    assert "secret-access-key=***" in text
    assert "hunter2" not in text


def test_every_secret_key_is_hidden_in_a_shown_uri() -> None:
    for scheme, keys in STORE_KEYS.items():
        for name, key in keys.items():
            assert key.shown or key.refused or "hunter2" not in redacted(f"{scheme}://lake?{name}=hunter2"), name


def test_the_page_of_stores_names_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "storage.md").read_text(encoding="utf-8")
    assert [key for keys in STORE_KEYS.values() for key in keys if f"`{key}`" not in page] == []
