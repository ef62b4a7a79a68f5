"""The options of each place, and which place wins: config file < sink URI < options.

A layer holds the values of one place, still unread. `merged` reads every value, even one that a later layer replaces,
so that a bad value is always reported. It follows TiCDC's merge rule: zero and false in the sink URI do not replace a
value of the config file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.config.options import IDLE, IDLE_IN_URI, OPTIONS, SWITCHES, Option, Switch, idle_name
from tidegate.config.text import Adjusted, boolean
from tidegate.errors import BadSetting
from tidegate.wording import hint

_DEEPEST = 32  # levels; options have four, sections of other sinks may have more
_CONFIG, _URI, _OPTIONS = "the config file", "the sink URI", "the options"


@dataclass
class Layer:
    """One place: (key as the user wrote it, key in OPTIONS, value) for each option, keys that do not apply, notes."""

    origin: str
    said: list[tuple[str, str, object]] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def merged(layers: Iterable[Layer]) -> tuple[dict[str, Any], list[str]]:
    """The field values of all layers, where a later layer wins, and the notes about the values that won."""
    chosen: dict[str, Any] = {}
    notes: dict[str, str] = {}
    remarks: list[str] = []
    for layer in layers:
        written: dict[str, str] = {}
        for name, key, value in layer.said:
            option = OPTIONS[key]
            if option.field in written:
                raise BadSetting(f"{written[option.field]} and {name} in {layer.origin} are the same option: keep one")
            written[option.field] = name
            if _leaves_as_is(option, value, layer.origin, chosen.get(option.field)):
                notes[option.field] = f"{name}={value} in {layer.origin} changes nothing (TiCDC's rule)"
                continue
            before = chosen.get(option.field)
            chosen[option.field], note = _read(name, option, value, layer.origin)
            if not note and option.loud and layer.origin == _URI and before not in (None, chosen[option.field]):
                note = f"{name}={value} in {_URI} wins over {option.show(before)} of {_CONFIG}"
            notes.pop(option.field, None)
            notes |= {option.field: note} if note else {}
        remarks += layer.notes
    return chosen, [*notes.values(), *remarks]


def _leaves_as_is(option: Option, value: object, origin: str, before: Any) -> bool:
    if value == "" and origin != _OPTIONS:
        return "" in option.yields
    return origin == _URI and value in option.yields and bool(before)


def _read(name: str, option: Option, value: object, origin: str) -> tuple[Any, str]:
    try:
        found = option.read(value)
    except BadSetting as exc:
        raise BadSetting(f"{name} {exc} (in {origin})") from None
    if isinstance(found, Adjusted):
        return found.value, f"{name} {value!r} in {origin} {found.why}"
    return found, ""


def config_layer(config: Mapping[str, Any]) -> Layer:
    places = {option.place: key for key, option in OPTIONS.items()}
    switches = {switch.place: switch for switch in SWITCHES.values()}
    layer = Layer(_CONFIG)
    for place, value in _leaves(config):
        if place in places:
            layer.said.append((place, places[place], value))
            layer.idle += _idle_inside(place, OPTIONS[places[place]], value)
        elif place in switches:
            layer.notes += _switched(place, switches[place], value, _CONFIG)
        elif idle := idle_name(place):
            layer.idle.append(idle)
            layer.notes += _integrity(value) if place == "integrity.integrity-check-level" else []
        elif any(known.startswith(place + ".") for known in (*places, *IDLE)):
            raise BadSetting(f"{place} in {_CONFIG} must be a table, written [{place}], not {value!r}")
        else:
            raise _unknown(place, places, _CONFIG, also=[*switches, *(key.rstrip(".") for key in IDLE)])
    return layer


def _leaves(table: Mapping[str, Any], prefix: str = "", depth: int = 1) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if depth > _DEEPEST:
            raise BadSetting(f"{prefix[:40]}... in {_CONFIG} is nested too deeply: no option has so many levels")
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.", depth + 1)
        else:
            yield f"{prefix}{key}", value


def _idle_inside(place: str, option: Option, value: object) -> list[str]:
    """Keys inside an array of tables that do not apply, such as `sink.dispatchers.topic`."""
    entries = [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []
    return [f"{place}.{key}" for entry in entries for key in entry if key in getattr(option.read, "idle", ())]


def _switched(name: str, switch: Switch, value: object, origin: str) -> list[str]:
    try:
        on = boolean(value)
    except BadSetting as exc:
        raise BadSetting(f"{name} {exc} (in {origin})") from None
    if on and switch.refused:
        raise BadSetting(f"{name} must be false: {switch.refused} (in {origin})")
    return [f"{name} in {origin} {switch.noted}"] if on else []


def _integrity(value: object) -> list[str]:
    if value not in ("none", "correctness"):
        raise BadSetting(f"integrity-check-level must be none or correctness, not {value!r} (in {_CONFIG})")
    return ["integrity-check-level is switched off: only a Kafka sink has row checksums"] if value != "none" else []


def uri_layer(query: Mapping[str, object], store_keys: Collection[str] = ()) -> Layer:
    """The options of the sink URI. `store_keys` are read elsewhere; they are known here to correct a misspelled key."""
    layer = Layer(_URI)
    for name, value in query.items():
        if name in OPTIONS:
            layer.said.append((name, name, value))
        elif name in SWITCHES:
            layer.notes += _switched(name, SWITCHES[name], value, _URI)
        elif name in IDLE_IN_URI:
            layer.idle.append(name)
        else:
            raise _unknown(name, [*OPTIONS, *store_keys], _URI, also=[*SWITCHES, *IDLE_IN_URI])
    return layer


def override_layer(overrides: Mapping[str, Any]) -> Layer:
    """Python names are the keys with '_' for '-' and '.': `spool_max_bytes` is `spool.max-bytes`."""
    spelled = {key.replace(".", "-"): key for key in (*OPTIONS, *SWITCHES)}
    layer = Layer(_OPTIONS)
    for name, value in overrides.items():
        key = spelled.get(name.replace(".", "-").replace("_", "-"))
        if key is None:
            raise _unknown(name, OPTIONS, _OPTIONS, also=SWITCHES)
        if value is None:
            continue
        if key in SWITCHES:
            layer.notes += _switched(name, SWITCHES[key], value, _OPTIONS)
        else:
            layer.said.append((name, key, value))
    return layer


def _unknown(name: str, known: Collection[str], origin: str, also: Collection[str]) -> BadSetting:
    """`also` are keys that a misspelled key may mean, but that are no options."""
    return BadSetting(f"unknown option {name!r} in {origin}; {hint(name, [*known, *also], 'docs/options.md')}")
