"""The keys of the sink URI that say how a remote store is reached. They are TiCDC's (BR's external storage).

A key may be written with '-' or '_'. A key that the object store client does not support is refused with the reason
if ignoring it would surprise. Values may be secret: no message repeats a value unless its key has `shown`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from tidegate.config.text import boolean
from tidegate.errors import BadSetting
from tidegate.storage.access import Access


def _any(value: str) -> str:
    return value


def _base64(value: str) -> str:
    """Parsing the URI turns a '+' that was not escaped into a space. No key contains a space, so it is undone."""
    return value.replace(" ", "+")


def _endpoint(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadSetting("must be a URL such as https://host:9000")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise BadSetting("must have no user, password or query: give keys as options of the sink URI")
    return value.rstrip("/")


def _switch(value: str) -> str:
    return "true" if boolean(value) else "false"


def _sse(value: str) -> str:
    if value not in ("AES256", "aws:kms", "aws:kms:dsse"):
        raise BadSetting("must be AES256, aws:kms or aws:kms:dsse")
    return value


@dataclass(frozen=True)
class StoreKey:
    """How a key is read, whether its value may be printed, and the reason if the key is refused."""

    read: Callable[[str], str] = _any
    shown: bool = False
    refused: str = ""


_SHOWN, _SECRET, _PLACE = StoreKey(shown=True), StoreKey(_base64), StoreKey(_endpoint, shown=True)
_NO_ROLE = "no role is assumed here; let the environment have the role (web identity, instance), or give its keys"

STORE_KEYS: dict[str, dict[str, StoreKey]] = {
    "s3": {
        "endpoint": _PLACE,
        "region": _SHOWN,
        "access-key": StoreKey(),
        "secret-access-key": _SECRET,
        "session-token": _SECRET,
        "force-path-style": StoreKey(_switch, shown=True),
        "provider": _SHOWN,
        "sse": StoreKey(_sse, shown=True),
        "sse-kms-key-id": StoreKey(),
        "storage-class": _SHOWN,
        "acl": StoreKey(refused="the client cannot set one; give the bucket a policy or an object ownership instead"),
        "role-arn": StoreKey(refused=_NO_ROLE),
        "external-id": StoreKey(refused=_NO_ROLE),
    },
    "gs": {
        "endpoint": _PLACE,
        "credentials-file": _SHOWN,
        "storage-class": _SHOWN,
        "predefined-acl": StoreKey(refused="the client cannot set one; give the bucket a policy instead"),
    },
    "azblob": {
        "endpoint": _PLACE,
        "account-name": _SHOWN,
        "account-key": _SECRET,
        "sas-token": _SECRET,
        "access-tier": _SHOWN,
        "encryption-key": _SECRET,
        "encryption-scope": StoreKey(refused="the client cannot set one; give the container a default scope instead"),
    },
}
_HOST_STYLE_PROVIDERS = ("alibaba", "netease")  # as in TiCDC


def read_access(scheme: str, query: Mapping[str, str]) -> tuple[Access, dict[str, str], list[str]]:
    """The keys for the store, the rest of the query, and notes.

    `read_access("s3", {"region": "eu-west-1", "file-size": "1MiB"})` keeps `file-size` as the rest.
    """
    known = STORE_KEYS.get(scheme, {})
    found: dict[str, str] = {}
    rest: dict[str, str] = {}
    for name, value in query.items():
        key = name.replace("_", "-")
        if key not in known:
            rest[name] = value
            continue
        if key in found:
            raise BadSetting(f"option {key!r} is given twice in the sink URI: keep one")
        if value:
            found[key] = _read(name, known[key], value)
    if "sas-token" in found and "sig" in rest:
        raise BadSetting("sas-token in the sink URI is cut off at its first '&': write & as %26 and % as %25 in it")
    notes = _checked(scheme, found)
    return Access(tuple(found.items()), shown=frozenset(key for key in found if known[key].shown)), rest, notes


def _read(name: str, key: StoreKey, value: str) -> str:
    if key.refused:
        raise BadSetting(f"{name} in the sink URI is not supported: {key.refused}")
    try:
        return key.read(value)
    except BadSetting as exc:
        raise BadSetting(f"{name} {exc} (in the sink URI)") from None


def _checked(scheme: str, found: dict[str, str]) -> list[str]:
    """Check rules between keys. Also decides, as TiCDC does, whether requests name the bucket in the path or host."""
    if scheme == "s3":
        if ("access-key" in found) != ("secret-access-key" in found):
            raise BadSetting("access-key and secret-access-key in the sink URI go together: give both, or none")
        if "session-token" in found and "access-key" not in found:
            raise BadSetting("session-token in the sink URI needs access-key and secret-access-key beside it")
        if "sse-kms-key-id" in found and not found.get("sse", "").startswith("aws:kms"):
            raise BadSetting("sse-kms-key-id in the sink URI needs sse=aws:kms")
        if found.get("provider") in _HOST_STYLE_PROVIDERS:
            found["force-path-style"] = "false"
        elif "provider" in found:
            return [f"provider={found['provider']} in the sink URI changes nothing"]
    if scheme == "azblob":
        if "account-key" in found and "sas-token" in found:
            raise BadSetting("account-key and sas-token are both in the sink URI: keep one")
        if ("account-key" in found or "sas-token" in found) and "account-name" not in found:
            raise BadSetting("account-key and sas-token in the sink URI need account-name beside them")
        if "encryption-key" in found and found.get("endpoint", "").startswith("http:"):
            raise BadSetting("encryption-key in the sink URI needs an https endpoint: it goes with every request")
    return []


_CREDENTIALS = ("access-key", "account-key", "sas-token", "credentials-file")


def shown_access(scheme: str, access: Access) -> list[tuple[str, str]]:
    """The keys whose values may be printed, and where the credentials come from."""
    if scheme not in STORE_KEYS:
        return []
    shown = [(key, value) for key, value in access.keys if STORE_KEYS[scheme][key].shown]
    given = next((key for key in _CREDENTIALS if access.get(key)), None)
    return [*shown, ("credentials", f"{given} in the sink URI" if given else "environment or platform")]
