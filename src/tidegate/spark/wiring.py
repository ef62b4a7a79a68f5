"""Settings become the values that a changefeed's parts are told. The only place that knows both."""

from __future__ import annotations

from functools import partial

from tidegate.config.cron import next_after
from tidegate.config.settings import Settings
from tidegate.driver.retention import Expiry


def expiry(settings: Settings) -> Expiry:
    """Files expire only where their dates are days."""
    return Expiry(
        days=settings.file_expiration_days if settings.date_separator == "day" else 0,
        next_cleaning=partial(next_after, settings.file_cleanup_cron),
        table_depth=1 if settings.table_id_as_path else 2,
    )
