"""What the default tier of cases detects compared with all cases, and which subjects a plain run includes."""

from pathlib import Path

from conformance import places
from conformance.cli.offer import Offer, by_default, make_offer
from conformance.engine.adapters import read_adapters, subjects_of
from conformance.engine.environments import our_own

from ..running import conformance

SUITE = """
format: 1
suite: few
summary: A few.
defaults: {operator: sdpa, batch: 2, num_heads: 3, seq_len_q: 5, seq_len_k: 7, head_dim: 11}
cases:
  - name: plain
  - name: masked
    inputs: {seed: 2}
    masks: [{kind: attention, pattern: holes}]
  - name: masked_again
    inputs: {seed: 3}
    masks: [{kind: attention, pattern: holes, seed: 2}]
"""


def audited(folder: Path, *listed: str) -> tuple[int, str]:
    """Run `audit --tiers` on the suite, with the listed cases only in thorough runs; return exit code and stdout."""
    cases = folder / "cases"
    cases.mkdir()
    (cases / "few.yaml").write_text(SUITE, encoding="utf-8")
    (cases / "thorough.txt").write_text("".join(f"{name}\n" for name in listed), encoding="utf-8")
    done = conformance("audit", "cases", "--tiers", cwd=folder)
    return done.returncode, done.stdout


def test_a_deviation_that_only_thorough_cases_detect_is_told_for_each_route(tmp_path: Path) -> None:
    code, said = audited(tmp_path, "few/masked", "few/masked_again")
    assert code == 1
    assert "only thorough cases detect" in said
    assert "polarity[mask0]=ignore" in said
    assert said.splitlines()[-1].endswith("a plain run misses what is listed above")


def test_a_case_that_another_stands_for_may_be_left_out(tmp_path: Path) -> None:
    code, said = audited(tmp_path, "few/masked_again")
    assert (code, said.count("only thorough cases detect polarity")) == (0, 0), said
    assert said.startswith("2 of 3 cases run by default")


def test_dense_forms_and_thorough_variants_are_asked_only_by_name() -> None:
    subjects = tuple(subjects_of(read_adapters([places.adapters() / "torch_mha.py"])))
    offer = Offer(subjects, {"default": our_own()}, (), ())
    plain = {subject.name for subject in by_default(offer, ["torch.mha"]).subjects}
    assert "torch.mha[eval]" in plain
    assert not {name for name in plain if "dense" in name or "aot_eager" in name}
    named = {subject.name for subject in by_default(offer, ["torch.mha[aot_eager]"]).subjects}
    assert "torch.mha[aot_eager]" in named


def test_a_variant_of_another_device_is_missed_only_if_it_was_named() -> None:
    whole = make_offer(["torch.sdpa*"], (), "cpu")
    assert {"torch.sdpa[math]", "torch.sdpa[flash]"} <= {subject.name for subject in whole.subjects}
    assert not any("cudnn" in subject.name for subject in whole.subjects)
    assert whole.incomplete == ()
    named = make_offer(["torch.sdpa[cudnn]"], (), "cpu")
    assert (named.subjects, named.incomplete) == ((), ("torch.sdpa[cudnn]: its adapter runs on cuda, not on cpu",))
    none = make_offer(["numpy.sdpa"], (), "cuda")
    assert none.incomplete == (
        "numpy.sdpa@cuda: its adapter runs on cpu, not on cuda",
        "no subject can run on device 'cuda' here",
    )
