"""Facts are read without running the file, and every mistake in them is reported with its line."""

from pathlib import Path

import pytest

from conformance.engine.adapters import Adapter, AdapterError, Subject, read_adapter, read_adapters, subjects_of

GOOD = '''"""An adapter."""

NAME = "fake.one"
OPERATORS = ["sdpa", "mha"]
REQUIRES = ["numpy", ["keras>=3", "keras-nightly"]]
OUTPUTS = ["output", "weights"]
DTYPES = ["float32"]
DEVICES = ["cpu"]
CAPABILITIES = []
SLOTS = {
    "mask": {"role": "mask", "takes": ["attention"], "axes": [["q", "k"]], "bool": "attend"},
}
EXTRA = "fake"
VARIANTS = {
    "plain": {},
    "fast": {
        "env": {"FAST": "1"},
        "summary": "The fast one.",
        "OUTPUTS": ["output"],
        "REQUIRES": ["numpy", "turbo"],
        "SLOTS": {"causal": {"role": "causal"}},
    },
}

raise SystemExit("this file was run")


def declare(facts): ...


def sdpa(call): ...


from elsewhere import mha
'''


def written(folder: Path, text: str = GOOD, name: str = "one.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def adapter(tmp_path: Path) -> Adapter:
    return read_adapter(written(tmp_path))


def test_facts_are_read(adapter: Adapter) -> None:
    assert adapter.name == "fake.one"
    assert adapter.framework == "fake"
    assert adapter.operators == ("sdpa", "mha")
    assert adapter.requires == (("numpy",), ("keras>=3", "keras-nightly"))
    assert adapter.slots["mask"].takes == ("attention",)
    assert adapter.extra == "fake"
    assert adapter.digest.startswith("sha256:")
    assert adapter.path.is_absolute()


def test_a_variant_overrides_facts(adapter: Adapter) -> None:
    plain, fast = Subject(adapter, "plain"), Subject(adapter, "fast")
    assert plain.outputs == ("output", "weights")
    assert fast.outputs == ("output",)
    assert fast.requires == (("numpy",), ("turbo",))
    assert list(fast.slots) == ["causal"]
    assert (fast.env, fast.summary, plain.env, plain.summary) == ({"FAST": "1"}, "The fast one.", {}, "")
    assert fast.dtypes == plain.dtypes == ("float32",)
    assert (fast.operators, fast.devices, fast.capabilities, fast.extra) == (("sdpa", "mha"), ("cpu",), (), "fake")


def test_names_of_subjects(adapter: Adapter) -> None:
    assert Subject(adapter, "fast").name == "fake.one[fast]"
    assert Subject(adapter, "fast", dense=True).name == "fake.one[fast,dense]"
    assert Subject(adapter, "fast", "cuda").name == "fake.one[fast]@cuda"
    assert Subject(adapter, "fast", "cpu", "old").name == "fake.one[fast]@cpu:old"
    assert Subject(adapter, "fast", "cuda", "old", dense=True).name == "fake.one[fast,dense]@cuda:old"


def test_a_nameless_variant(tmp_path: Path) -> None:
    start, end = GOOD.index("VARIANTS"), GOOD.index("raise")
    adapter = read_adapter(written(tmp_path, GOOD[:start] + GOOD[end:]))
    assert [subject.name for subject in subjects_of([adapter])] == ["fake.one"]
    assert Subject(adapter, dense=True).name == "fake.one[dense]"


def test_dense_subjects_are_where_arguments_can_be_chosen(adapter: Adapter) -> None:
    subjects = subjects_of([adapter], environments=("default", "old"))
    names = ["fake.one[plain]", "fake.one[fast]", "fake.one[fast,dense]"]
    assert [subject.name for subject in subjects] == names + [name + "@cpu:old" for name in names]
    assert [subject.counted for subject in subjects[:3]] == [True, True, False]


MISTAKES = {
    'NAME = "fake.one"': {
        "": "1: NAME is missing",
        'NAME = "one"': "3: NAME is 'one', expected framework.entry_point",
        "NAME = f'fake.{1}'": "3: NAME is not a literal; facts are read without running the file",
        'NAME = "fake.one"\nNAME = "fake.two"': "4: NAME is assigned twice",
    },
    'OPERATORS = ["sdpa", "mha"]': {
        'OPERATORS = ["sdpa", "gqa"]': "4: OPERATORS has 'gqa', expected sdpa, mha",
        'OPERATORS = "sdpa"': "4: OPERATORS is 'sdpa', expected a list of sdpa, mha",
        "OPERATORS = []": "4: OPERATORS is [], expected a list of",
    },
    'REQUIRES = ["numpy", ["keras>=3", "keras-nightly"]]': {
        'REQUIRES = ["keras >> 3"]': "5: REQUIRES has 'keras >> 3', expected a distribution such as",
        'REQUIRES = "numpy"': "5: REQUIRES is 'numpy', expected a list",
        "REQUIRES = [3]": "5: REQUIRES has 3",
    },
    'OUTPUTS = ["output", "weights"]': {
        'OUTPUTS = ["output", "weight"]': "6: OUTPUTS has 'weight', expected output, weights, weights_mean, gradients,",
        'OUTPUTS = ["output"]\nOUTPUT = []': "7: unknown fact OUTPUT; did you mean OUTPUTS?",
    },
    'DTYPES = ["float32"]': {'DTYPES = ["fp32"]': "7: DTYPES has 'fp32', expected float64, float32, float16, bfloat16"},
    "CAPABILITIES = []": {
        'CAPABILITIES = ["scales"]': "9: CAPABILITIES has 'scales'",
        "CAPABILITIES = [{}]": "9: CAPABILITIES has {}",
        "CAPABILITIES = None": "9: CAPABILITIES is None",
    },
    '"bool": "attend"': {
        '"bool": "yes"': "11: SLOTS: slot mask: bool is 'yes', expected one of attend, ignore",
        '"bool": "attend", "polarity": 1': "11: SLOTS: slot mask: unknown key 'polarity'",
        '"bool": "attend", "excludes": ["flag"]': "11: SLOTS: slot mask: excludes names 'flag', which is not a slot",
    },
    '"role": "mask", ': {"": "11: SLOTS: slot mask: role is None"},
    'EXTRA = "fake"': {"EXTRA = None": "13: EXTRA is None, expected the name of an extra"},
    '    "plain": {},': {
        '    "dense": {},': "15: invalid variant name 'dense'",
        '    "a b": {},': "15: invalid variant name 'a b'",
        "    1: {},": "15: invalid variant name 1",
        '    "plain": {"environment": {}},': "15: variant plain has 'environment', expected env, summary",
        '    "plain": {"NAME": "x.y"},': "15: variant plain has 'NAME'",
        '    "plain": {"env": {"A": 1}},': "15: variant plain: env is {'A': 1}, expected names and values as strings",
        '    "plain": {"env": ["A"]},': "15: variant plain: env is ['A']",
        '    "plain": {"summary": 1},': "15: variant plain: summary is 1, expected a sentence",
        '    "plain": [],': "15: variant plain is not a mapping",
        '    "plain": {"DTYPES": ["int8"]},': "15: DTYPES has 'int8'",
    },
    "def declare(facts): ...": {
        "": "1: the function declare is missing",
        "def declare(:": "28: cannot be read: invalid syntax",
    },
    "def sdpa(call): ...": {"": "1: the function sdpa is missing"},
}


@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [(right, wrong, fault) for right, pairs in MISTAKES.items() for wrong, fault in pairs.items()],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, right: str, wrong: str, fault: str) -> None:
    assert right in GOOD
    path = written(tmp_path, GOOD.replace(right, wrong, 1))
    with pytest.raises(AdapterError) as caught:
        read_adapter(path)
    assert len(caught.value.faults) == 1
    assert caught.value.faults[0].startswith(f"{path}:{fault}")


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.replace("float32", "fp32").replace("DEVICES", "DEVICE").replace('"mask",', '"hat",'))
    with pytest.raises(AdapterError) as caught:
        read_adapter(path)
    assert [fault.removeprefix(f"{path}:").partition(":")[0] for fault in caught.value.faults] == ["1", "7", "8", "11"]
    assert str(caught.value) == "\n".join(caught.value.faults)


def test_a_missing_file_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=r"nowhere\.py:1: cannot be read: .*No such file"):
        read_adapter(tmp_path / "nowhere.py")


def test_a_folder_gives_its_adapters_and_no_helpers(tmp_path: Path) -> None:
    written(tmp_path, GOOD.replace("fake.one", "fake.two"), "two.py")
    written(tmp_path)
    written(tmp_path, "not python at all", "_helper.py")
    assert [adapter.name for adapter in read_adapters([tmp_path])] == ["fake.one", "fake.two"]
    assert [adapter.name for adapter in read_adapters([tmp_path / "two.py", tmp_path / "two.py"])] == ["fake.two"]


def test_two_adapters_of_one_name_are_a_mistake(tmp_path: Path) -> None:
    written(tmp_path)
    written(tmp_path, name="two.py")
    with pytest.raises(AdapterError, match=r"two.py:1: NAME 'fake.one' is already used by .*one.py"):
        read_adapters([tmp_path])


def test_the_mistakes_of_all_files_are_told(tmp_path: Path) -> None:
    written(tmp_path, GOOD.replace("float32", "fp32"))
    written(tmp_path, "", "two.py")
    with pytest.raises(AdapterError) as caught:
        read_adapters([tmp_path])
    assert {Path(fault.partition(":")[0]).name for fault in caught.value.faults} == {"one.py", "two.py"}
