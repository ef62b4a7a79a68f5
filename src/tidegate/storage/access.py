"""How a remote store is reached: what the sink URI says about it, as values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from tidegate.wording import hidden

REMOTE = ("s3", "gs", "azblob")


@dataclass(frozen=True)
class Access:
    """Keys of the sink URI with their values. Holds secrets, so it is never printed."""

    keys: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    parts_at_once: int = 1  # of a file that is uploaded in parts
    one_put_bytes: int = 64 << 20  # a file up to this size is one put; it is in memory as a whole
    shown: frozenset[str] = frozenset()  # keys whose values may appear in messages; all others are secret

    def get(self, key: str) -> str | None:
        return next((value for name, value in self.keys if name == key), None)

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(value for key, value in self.keys if key not in self.shown)

    def hide(self, text: str) -> str:
        """The text without any secret, however a store's own message has spelled it."""
        spelled = {form for value in self.secrets for form in (value, quote(value), quote(value, safe=""))}
        text = hidden(text, spelled)
        return re.sub(r"(?i)((?:signature|sig)=)[^&\s\"']+", r"\1***", text)


NO_ACCESS = Access()


def bucket_and_prefix(sink_uri: str) -> tuple[str, str]:
    """`s3://lake/cdc/a%20b` is ("lake", "cdc/a b")."""
    bucket, _, prefix = sink_uri.partition("://")[2].partition("/")
    return bucket, unquote(prefix)
