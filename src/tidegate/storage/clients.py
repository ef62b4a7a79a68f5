"""Opening the client of a remote store: its credentials, endpoint and time limits, from the keys of the sink URI.

Promises: what the sink URI says wins over the environment. The client retries nothing: a create-only put that is
repeated would find the object of its own first try, and the driver retries what failed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from obstore.store import AzureStore, GCSStore, S3Store

from tidegate.storage.access import Access

if TYPE_CHECKING:
    from obstore.store import AzureConfig, ClientConfig, GCSConfig, RetryConfig, S3Config, S3Credential

ANSWER_S = 20.0  # until the server must answer
_CONNECT_S, _REQUEST_S = 5.0, 120.0  # 128 MiB at 10 MiB/s are sent before an answer can come
_NO_RETRIES: RetryConfig = {"max_retries": 0}

Client = S3Store | GCSStore | AzureStore


def open_client(scheme: str, bucket: str, access: Access, answer_s: float) -> Client:
    """`open_client("s3", "lake", access, 20.0)`. Raises the library's errors, whose text may hold secrets."""
    return _OPENERS[scheme](bucket, access, _client_options(access, answer_s))


def _client_options(access: Access, answer_s: float) -> ClientConfig:
    options: ClientConfig = {
        "connect_timeout": timedelta(seconds=_CONNECT_S),
        "read_timeout": timedelta(seconds=answer_s),
        "timeout": timedelta(seconds=_REQUEST_S),
        "pool_idle_timeout": timedelta(seconds=15),  # a connection that the server has closed is a failed request
    }
    if (access.get("endpoint") or "").startswith("http:"):
        options["allow_http"] = True
    return options


def _open_s3(bucket: str, access: Access, options: ClientConfig) -> Client:
    config: dict[str, Any] = {"conditional_put": "etag", "copy_if_not_exists": "multipart"}
    config["disable_bulk_delete"] = True
    names = {"region": "region", "sse": "server_side_encryption", "sse-kms-key-id": "sse_kms_key_id"}
    config |= {name: access.get(key) for key, name in names.items() if access.get(key)}
    by_host = access.get("force-path-style") == "false"
    config["virtual_hosted_style_request"] = by_host
    if endpoint := access.get("endpoint"):
        scheme, _, host = endpoint.partition("://")
        config["endpoint"] = f"{scheme}://{bucket}.{host}" if by_host else endpoint
    key, secret = access.get("access-key"), access.get("secret-access-key")
    # Through a provider: otherwise a session token of the environment would be sent with the keys of the URI.
    provider = _StaticKeys(key, secret, access.get("session-token")) if key and secret else None
    return S3Store(
        bucket,
        config=cast("S3Config", config),
        client_options=options,
        retry_config=_NO_RETRIES,
        credential_provider=provider,
    )


@dataclass(frozen=True, repr=False)
class _StaticKeys:
    key: str
    secret: str
    token: str | None

    def __call__(self) -> S3Credential:
        return {
            "access_key_id": self.key,
            "secret_access_key": self.secret,
            "token": self.token,
            "expires_at": None,
        }


def _open_gs(bucket: str, access: Access, options: ClientConfig) -> Client:
    config: dict[str, Any] = {}
    if endpoint := access.get("endpoint"):
        config["base_url"] = endpoint
    if file := access.get("credentials-file"):
        config[_credentials_key(file)] = file
    return GCSStore(bucket, config=cast("GCSConfig", config), client_options=options, retry_config=_NO_RETRIES)


def _credentials_key(file: str) -> str:
    """The option under which the client takes this kind of Google's credential files."""
    with open(file, encoding="utf-8") as text:
        kind = json.load(text).get("type")
    return "application_credentials" if kind == "authorized_user" else "service_account"


def _open_azblob(bucket: str, access: Access, options: ClientConfig) -> Client:
    names = {"account-name": "account_name", "account-key": "account_key", "sas-token": "sas_key"}
    names |= {"endpoint": "endpoint", "encryption-key": "encryption_key"}
    config: dict[str, Any] = {name: access.get(key) for key, name in names.items() if access.get(key)}
    if access.get("account-key"):
        config["credential_type"] = "access_key"  # whatever else the environment holds
    if token := access.get("sas-token"):
        config |= {"sas_key": token.removeprefix("?"), "credential_type": "sas_token"}
    return AzureStore(bucket, config=cast("AzureConfig", config), client_options=options, retry_config=_NO_RETRIES)


_OPENERS = {"s3": _open_s3, "gs": _open_gs, "azblob": _open_azblob}
