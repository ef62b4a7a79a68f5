"""What the documents say about the code is there: modules, classes and functions that they name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tidegate"
PAGES = ["CONTRIBUTING.md", "README.md", *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/**/*.md")))]
_MODULE = re.compile(r"`((?:src/tidegate/|tests/)?[a-z_0-9/]+\.py)`")
_MEMBER = re.compile(r"`([A-Z][A-Za-z]+)\.(_?[a-z_0-9]+)`")
_DOTTED = re.compile(r"`(tidegate(?:\.[a-z_0-9]+)+)")


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def members() -> dict[str, set[str]]:
    """The names in every class of the package: methods and annotated fields."""
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                names = found.setdefault(node.name, set())
                for each in ast.walk(node):
                    if isinstance(each, ast.FunctionDef):
                        names.add(each.name)
                    elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                        names.add(each.target.id)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_the_modules_that_a_page_names_exist(page: str) -> None:
    named = set(_MODULE.findall(text(page)))
    roots = (SOURCE, ROOT, ROOT / "tests" / "unit", *(path for path in SOURCE.rglob("*") if path.is_dir()))
    assert sorted(name for name in named if not any((root / name).exists() for root in roots)) == []


@pytest.mark.parametrize("page", PAGES)
def test_the_dotted_names_that_a_page_names_exist(page: str) -> None:
    missing = []
    for name in set(_DOTTED.findall(text(page))):
        parts = name.split(".")[1:]
        places = (SOURCE.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1))
        module = next(place for place in places if place.is_dir() or place.with_suffix(".py").exists())
        left = parts[len(module.relative_to(SOURCE).parts) :]
        code = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
        if left and not re.search(rf"\b{left[0]}\b", code.read_text(encoding="utf-8")):
            missing.append(name)
    assert sorted(missing) == []


def test_the_walks_name_methods_that_exist() -> None:
    known = members()
    named = [found for found in _MEMBER.findall(text("CONTRIBUTING.md")) if found[1] != "md"]
    assert named
    assert [f"{kind}.{name}" for kind, name in named if name not in known.get(kind, ())] == []


def slug(heading: str) -> str:
    """The anchor that GitHub makes of a heading: `## What a start finds` is `#what-a-start-finds`."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def anchors(page: Path) -> set[str]:
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {slug(heading) for heading in found}


@pytest.mark.parametrize("page", PAGES)
def test_the_links_of_a_page_lead_somewhere(page: str) -> None:
    plain = re.sub(r"```.*?```", "", text(page), flags=re.DOTALL)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", plain):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        to = (ROOT / page).parent / path if path else ROOT / page
        if not to.exists() or (anchor and anchor not in anchors(to)):
            broken.append(target)
    assert broken == []


def test_every_page_is_in_the_index() -> None:
    index = text("docs/README.md")
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    unnamed = [str(path) for path in pages if f"({path})" not in index and path.parts[0] != "decisions"]
    assert unnamed == ["README.md"]
