"""JUnit XML fails exactly where the gate rejects, and it parses whatever text a run contains."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from conformance.report import load_run
from conformance.report.junit import junit_xml, legal, write_junit

from .build_run import RunBuilder
from .junit_schema import faults


@pytest.fixture(scope="module")
def root(demonstration: Path, tmp_path_factory: pytest.TempPathFactory) -> ET.Element:
    path = tmp_path_factory.mktemp("junit") / "junit.xml"
    write_junit(load_run(demonstration), path)
    return read(path.read_bytes())


def read(document: str | bytes) -> ET.Element:
    return ET.fromstring(document)  # noqa: S314 - our own text


def find(root: ET.Element, subject: str, case: str) -> ET.Element:
    test = root.find(f"testsuite[@name='{subject}']/testcase[@name='{case}']")
    assert test is not None
    return test


def test_it_is_valid_by_the_common_schema(root: ET.Element) -> None:
    assert faults(root) == []


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ("<report/>", "the root is report"),
        ('<testsuites skipped="1"/>', "testsuites: attribute skipped is not allowed"),
        ('<testsuites><testsuite name="a" tests="0" failures="0"/></testsuites>', "testsuite a: no attribute errors"),
        ('<testsuites time="0.1234"/>', "testsuites: 0.1234 is no time"),
        ("<testsuites><testcase name='b'/></testsuites>", "testsuites: testcase is not allowed"),
        ("<testsuites>text</testsuites>", "testsuites: text is not allowed"),
    ],
)
def test_a_document_that_is_not_valid_would_be_found(document: str, fault: str) -> None:
    assert fault in faults(read(document))


def test_a_file_at_a_test_and_one_that_is_there_twice_would_be_found(root: ET.Element) -> None:
    changed = read(ET.tostring(root))
    test = changed[0].findall("testcase")[0]
    test.set("file", "cases/masks/key_padding.yaml")
    changed[0].append(test)
    found = faults(changed)
    assert f"testcase {test.get('name')}: attribute file is not allowed" in found
    assert f"{test.get('classname')}, {test.get('name')} is there twice" in found


def test_versions_and_where_it_was_judged_are_properties(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    builder.cell(builder.case("a/b"), builder.subject("torch.mha", environment="old"))
    builder.subject("keras.mha")
    builder.worker("keras", ["keras.mha"], versions={"keras": "3.15.0"})
    builder.worker("torch", ["torch.mha"], versions={"torch": "2.13.0", "numpy": "1.26.4"}, python="3.10.1")
    root = read(junit_xml(load_run(builder.write())))
    assert faults(root) == []
    found = {
        each.get("name"): each.get("value") for each in root.findall("testsuite[@name='torch.mha']/properties/property")
    }
    assert found == {
        "conformance": "0.1.0",
        "python": "3.10.1",
        "numpy": "1.26.4",
        "device": "cpu",
        "environment": "old",
        "system": "Linux",
        "machine": "x86_64",
        "torch": "2.13.0",
    }


def test_one_suite_per_subject_one_test_per_case(root: ET.Element) -> None:
    suites = {suite.get("name"): suite for suite in root}
    assert len(suites) == 14
    assert (
        suites["torch.sdpa[math]"].attrib.items()
        >= {"tests": "28", "failures": "10", "errors": "0", "skipped": "0"}.items()
    )
    assert suites["torch.mha"].attrib.items() >= {"tests": "28", "failures": "0", "skipped": "4"}.items()
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("348", "13", "7")


def test_a_failure_says_why_and_how_to_run_it_again(root: ET.Element) -> None:
    test = find(root, "torch.sdpa[math]", "masks/key_padding/sdpa_trailing[dtype=float32]")
    assert test.get("classname") == "torch.sdpa[math]"
    failure = test.find("failure")
    assert failure is not None
    assert failure.get("message") == (
        "fail, semantic: 1 cause explains 10 verdicts of torch.sdpa[math]: it reads True in attn_mask as ignore, "
        "only with a mask; workaround: pass ~attn_mask"
    )
    assert failure.text is not None
    assert "rerun: conformance run -a 'torch.sdpa[math]' -k" in failure.text
    assert (
        "equally possible: it ignores attn_mask (workaround: do not rely on attn_mask: it has no effect)"
        in failure.text
    )


def test_an_exception_is_an_error_with_its_traceback(root: ET.Element) -> None:
    error = find(root, "onnx.torch_sdpa", "causal/offset/sdpa_past[dtype=float32]").find("error")
    assert error is not None
    assert error.text is not None
    assert "Traceback (most recent call last)" in error.text


@pytest.mark.parametrize(
    ("subject", "case", "message"),
    [
        ("onnx.torch_mha", "shapes/cross/mha_longer_keys[dtype=bfloat16]", "unsupported: bfloat16 is not in DTYPES"),
        ("torch.sdpa[flash]", "numerics/large/sdpa_equal_logits[dtype=bfloat16]", "inconclusive: precision outside"),
        (
            "torch.mha",
            "degenerate/fully_masked_rows/mha_one_row[dtype=float32]",
            "known: A fully masked row is NaN in the fast path",
        ),
    ],
)
def test_what_the_gate_accepts_is_skipped_with_its_reason(
    root: ET.Element, subject: str, case: str, message: str
) -> None:
    skipped = find(root, subject, case).find("skipped")
    assert skipped is not None
    assert str(skipped.get("message")).startswith(message)


def test_the_link_of_a_known_deviation_is_told(root: ET.Element) -> None:
    skipped = find(root, "torch.mha", "degenerate/fully_masked_rows/mha_one_row[dtype=float32]").find("skipped")
    assert skipped is not None
    assert "(https://github.com/pytorch/pytorch/issues/103749)" in str(skipped.get("message"))


def test_a_dialect_passes_and_names_what_is_declared(root: ET.Element) -> None:
    test = find(root, "keras.mha[jax]", "degenerate/fully_masked_rows/mha_one_row[dtype=float32]")
    assert [child.tag for child in test] == ["system-out"]
    assert "fully_masked_row: unmasked_softmax https://keras.io" in str(test[0].text)


def test_what_stands_against_the_run_besides_verdicts_is_a_suite(root: ET.Element) -> None:
    names = [test.get("name") for test in root.findall("testsuite[@name='gate']/testcase")]
    assert "known deviation no longer needed: known.yaml:31 jax.nn.dot_product_attention" in names


def test_a_rejected_inconclusive_is_a_failure(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    builder.cell(
        builder.case("a/b"), builder.subject("torch.mha"), "inconclusive", rejected=True, reason="coverage 0.5"
    )
    root = read(junit_xml(load_run(builder.write())))
    assert root.find("testsuite/testcase/failure") is not None


def test_a_cut_run_is_red(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    builder.case("a/c")
    builder.cell(builder.case("a/b"), builder.subject("torch.mha"))
    builder.footed = False
    root = read(junit_xml(load_run(builder.write())))
    assert root.get("errors") == "2"
    assert faults(root) == []


def test_hostile_text_parses(hostile_run: Path, hostile: str, tmp_path: Path) -> None:
    write_junit(load_run(hostile_run), tmp_path / "junit.xml")
    root = read((tmp_path / "junit.xml").read_bytes())
    assert faults(root) == []
    failure = root.find(".//failure")
    assert failure is not None
    assert hostile in str(failure.text)


def test_only_what_xml_cannot_carry_is_replaced() -> None:
    assert legal("a\tb\nc\x00\x0b\x1f\ud800\ufffe") == "a\tb\nc" + "\ufffd" * 5
    assert legal("ü≈✗\U0001f642") == "ü≈✗\U0001f642"
