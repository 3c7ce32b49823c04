"""Files for contributors: hooks run the ruff of CI, issue forms are complete, and the page names every nox session."""

import ast
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
FORMS = [path for path in TEMPLATES if path.name != "config.yml"]


def test_hooks_run_the_ruff_of_ci_and_load_nothing_else() -> None:
    repos = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    pins = (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [repo["repo"] for repo in repos] == ["local"]
    hooks = repos[0]["hooks"]
    assert [hook["id"] for hook in hooks] == ["ruff", "ruff-format"]
    assert all(set(hook["additional_dependencies"]) <= set(pins) for hook in hooks)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_has_what_github_requires(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= form.keys()
    ids = [part["id"] for part in form["body"]]
    assert len(set(ids)) == len(ids)
    for part in form["body"]:
        assert part["type"] in ("input", "textarea")
        assert part["attributes"]["label"]


def test_there_are_forms() -> None:
    assert len(FORMS) >= 3
    assert (ROOT / ".github" / "pull_request_template.md").is_file()


def test_the_page_names_every_session_of_a_change() -> None:
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    sessions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list}
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = {name for words in re.findall(r"`nox -s ([\w ]+)`", page) for name in words.split()}
    assert sessions - named == {"conformance", "smoke", "upgrade"}  # for users: see README.md and docs/upgrading.md
