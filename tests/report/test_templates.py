"""Compiled templates are kept in the cache folder, and no page depends on it."""

from pathlib import Path

import pytest
from jinja2 import Template

from conformance.report.page_data import environment

NAME = "comparison.html.j2"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONFORMANCE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def template() -> Template:
    return environment({}).get_template(NAME)


def test_a_template_is_compiled_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    template()
    (kept,) = (cache / "templates").iterdir()
    monkeypatch.setattr("jinja2.Environment.compile", lambda *_, **__: pytest.fail("it is compiled again"))
    assert template().name == NAME
    assert kept.is_file()


@pytest.mark.parametrize("content", [b"", b"damaged", bytes(64)])
def test_a_damaged_one_is_compiled_again(cache: Path, content: bytes) -> None:
    template()
    (kept,) = (cache / "templates").iterdir()
    good = kept.read_bytes()
    kept.write_bytes(content)
    assert template().name == NAME
    assert kept.read_bytes() == good


def test_one_that_is_cut_off_is_compiled_again(cache: Path) -> None:
    template()
    (kept,) = (cache / "templates").iterdir()
    good = kept.read_bytes()
    kept.write_bytes(good[: len(good) // 2])
    assert template().name == NAME
    assert kept.read_bytes() == good


def test_without_a_cache_folder_it_is_compiled_each_time(cache: Path) -> None:
    cache.write_text("a file", encoding="utf-8")
    assert template().name == NAME
    assert cache.read_text(encoding="utf-8") == "a file"
