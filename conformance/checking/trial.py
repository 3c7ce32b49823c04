"""Trial calls of the function to check: they find out which arrays, axis order and masks it takes."""

import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from conformance.bridge import Call, Facts, Tensor
from conformance.checking.array_layouts import PASSED, ArrayLayouts
from conformance.checking.layer import Layer
from conformance.checking.mask_trial import FORMS, HIDDEN, MASK_FORMS, RETURNED, MaskTrial, TrialError
from conformance.checking.signature import DTYPES, LAYOUTS, MASKS, NOTHING, Alias, MaskForm, Signature, Sizes
from conformance.checking.target import CheckError
from conformance.spec.problem import AXES, Array
from conformance.spec.rounding import round_to, to_tensor

# Sizes of the plain call; axes that could be swapped have different sizes.
SIZES = {"batch": 2, "num_heads": 3, "num_kv_heads": 3, "seq_len_q": 5, "seq_len_k": 7, "head_dim": 4, "value_dim": 4}

# What is tried if every call in these sizes raises an exception: a usual head_dim and whole blocks (in different sizes,
# so that one axis cannot pass for another), then everything else that may work.
USUAL = (Sizes((64,), 128), Sizes((128,), 256))
HEAD_DIMS = (SIZES["head_dim"], 8, 16, 32, 64, 128, 256)
MULTIPLES = (1, 8, 16, 32, 64, 128, 256)

# The dtypes of plain calls if none in float32 works.
OTHER_DTYPES = ("float16", "bfloat16", "float64")

# Seed of the arrays of the plain call.
SEED = 7

# Maximum absolute error of a right answer when an axis order is chosen; rounding errors are smaller.
NEAR = 0.05

ARRAYS = {"numpy": "NumPy arrays", "torch": "torch tensors", "jax": "JAX arrays"}

# Pattern of exceptions about tensors on several devices.
OF_DEVICES = re.compile(r"\bdevices?\b|\bcuda\b|\bmeta tensor", re.IGNORECASE)


# Role -> the value that a plain call passes.
DEFAULTS: dict[str, Any] = {
    "mask": None,
    NOTHING: None,
    "is_causal": False,
    "causal_alignment": "top_left",
    "scale": None,
    "bias": None,
    "key_padding_mask": None,
    "lengths": None,
    "num_kv_heads": SIZES["num_kv_heads"],
    "window": None,
    "softcap": None,
    "dropout_p": 0.0,
    "need_weights": False,
    "average_weights": False,
    "enable_gqa": False,
    "training": False,
    "deterministic": True,
}


# What plain calls show, or None; framework and layout -> how they failed; the frameworks that were tried.
_Searched = tuple[Signature | None, dict[tuple[str, str], TrialError], list[str]]


class Trial:
    """Makes plain calls of one function until one has a reply of the right form."""

    def __init__(self, called: str, function: Callable[..., Any], signature: Signature, path: str) -> None:
        self._called, self._function, self._signature, self._path = called, function, signature, path
        self._known_layouts: dict[tuple[str, str], ArrayLayouts] = {}
        self._dtype = "float32"
        self._sizes = plain_sizes(signature.sizes)  # of the last call that worked

    def settled(self, frameworks: Sequence[str], layouts: Sequence[str]) -> Signature:
        """
        Return the signature with framework, layout, mask form and everything else that trial calls show.

        Raises:
            CheckError: no call has a reply of the right form.
        """
        found, failures, tried = self._in_some_dtype(frameworks, layouts)
        raised = all(failed.line < RETURNED for failed in failures.values())
        if found is None and raised and self._signature.operator == "sdpa" and not self._signature.sizes.are_limited:
            found = self._in_limited_sizes(frameworks, layouts)
        if found is None:
            raise CheckError(self._failure_lines(failures, tried, layouts))
        return found

    def _in_some_dtype(self, frameworks: Sequence[str], layouts: Sequence[str]) -> _Searched:
        """Return what plain calls show, in float32 or, if none works, in the first other dtype in which one works."""
        self._dtype = "float32"
        found, failures, tried = self._searched(frameworks, layouts)
        if found is not None:
            refused = self._refused_dtypes(found)
            dtypes = tuple(dtype for dtype in _dtypes_of(found.framework) if dtype not in refused)
            return replace(found, dtypes=dtypes, refused=refused), failures, tried
        for dtype in OTHER_DTYPES:  # a kernel may take half precision only
            self._dtype = dtype
            other, _, _ = self._searched([each for each in frameworks if dtype in _dtypes_of(each)], layouts)
            if other is not None:
                first = next(iter(failures.values()))
                refusal = failures.get((other.framework, other.layout), first)
                return replace(other, dtypes=self._taken(other), refusal=str(refusal)), failures, tried
        return None, failures, tried

    def _in_limited_sizes(self, frameworks: Sequence[str], layouts: Sequence[str]) -> Signature | None:
        """Return what plain calls show in sizes that a kernel takes, or None if none works."""
        given = self._signature
        for sizes in USUAL:
            self._signature = replace(given, sizes=sizes)
            found, _, _ = self._in_some_dtype(frameworks, layouts)
            if found is not None:
                break
        else:
            return None
        self._dtype = "float32" if "float32" in found.dtypes else found.dtypes[0]
        refusal = self._failed(found, Sizes())
        self._signature = replace(given, sizes=self._limits(found))
        smallest, _, _ = self._in_some_dtype([found.framework], [found.layout])
        return replace(smallest or found, size_refusal="" if refusal is None else str(refusal))

    def _limits(self, signature: Signature) -> Sizes:
        """Return the sizes in which a plain call works, given those of one that does."""
        given = signature.sizes
        multiples = (each for each in MULTIPLES if not self._failed(signature, replace(given, multiple=each)))
        sizes = replace(given, multiple=next(multiples, given.multiple))
        taken = [each for each in HEAD_DIMS if not self._failed(signature, replace(sizes, head_dims=(each,)))]
        return replace(sizes, head_dims=() if HEAD_DIMS[0] in taken else tuple(taken))

    def _failed(self, signature: Signature, sizes: Sizes) -> TrialError | None:
        """Return why a plain call in these sizes fails, or None if one works, maybe with equal lengths."""
        failures = []
        for numbers in _unequal_and_equal(sizes):
            try:
                self._returning(signature, self._reply(signature, numbers, {}), numbers)
            except TrialError as failed:
                failures.append(failed)
            else:
                return None
        return failures[0]

    def _refused_dtypes(self, signature: Signature) -> dict[str, str]:
        """Return dtype -> what a plain call raises, for each dtype that the function itself refuses."""
        refused = {}
        for dtype in _dtypes_of(signature.framework):
            self._dtype = dtype
            try:
                self._reply(signature, self._sizes, {})
            except TrialError as failed:
                if failed.refused:
                    refused[dtype] = str(failed)
        self._dtype = "float32"
        return refused

    def _searched(self, frameworks: Sequence[str], layouts: Sequence[str]) -> _Searched:
        """Return what plain calls in one dtype show, or None; how they failed; and the frameworks that were tried."""
        failures: dict[tuple[str, str], TrialError] = {}
        every = _unequal_and_equal(self._signature.sizes)[-1 if self._signature.is_self_attention else 0 :]
        tried = [*frameworks]
        for sizes, framework in product(every, frameworks):
            found: list[Signature] = []
            for layout in layouts if framework in tried else ():
                if layout == "sd" and found:  # a call for each head: only if no other layout works
                    continue
                try:
                    found.append(self._tried(replace(self._signature, framework=framework, layout=layout), sizes))
                except TrialError as failed:
                    failures.setdefault((framework, layout), failed)
                    if failed.line == RETURNED:  # so the framework is right
                        tried = [framework]
            if found:
                found = [each for each in found if self._is_near(each, sizes)] or found
                best = next((each for each in found if self._takes_padding(each, sizes)), found[0])
                self._sizes = sizes
                best = replace(best, wide=self._is_wide(best, sizes))
                best = MaskTrial(partial(self._output, sizes=sizes), sizes, self._dtype).settled(best)
                return _with_equal_lengths(best, sizes, failures), failures, tried
        return None, failures, tried

    def _taken(self, signature: Signature) -> tuple[str, ...]:
        """Return the dtypes in which a plain call works."""
        sizes, taken = self._sizes, []
        for dtype in _dtypes_of(signature.framework):
            self._dtype = dtype
            with suppress(TrialError):
                self._returning(signature, self._reply(signature, sizes, {}), sizes)
                taken.append(dtype)
        return tuple(taken)

    def _is_near(self, signature: Signature, sizes: Mapping[str, int]) -> bool:
        """
        Return whether an sdpa call gives the right answer; several axis orders may give the right shape.

        If no axis order gives the right answer, the first one is used: the distance of a wrong answer says nothing.
        """
        if signature.operator != "sdpa":
            return True
        call = plain_call("sdpa", sizes, {}, SEED, dtype=self._dtype)
        query, key, value = (each.float64() for each in (call.query, call.key, call.value))
        logits = query @ key.swapaxes(-1, -2) * sizes["head_dim"] ** -0.5
        raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
        expected = raised / raised.sum(axis=-1, keepdims=True) @ value
        return bool((np.abs(self._output(signature, {}, sizes) - expected) < NEAR).all())

    def _takes_padding(self, signature: Signature, sizes: Mapping[str, int]) -> bool:
        """Return whether a call with each argument for padding works; a function may take other axes without one."""
        padding = [role for role in ("key_padding_mask", "lengths") if signature.has(role)]
        padded = replace(signature, always=(*signature.always, *padding))
        try:
            self._output(padded, {}, sizes)
        except TrialError:
            return False
        return True

    def _layouts(self, signature: Signature) -> ArrayLayouts:
        """Return the converter of a framework and layout, which is stateful: it knows the sizes of the last call."""
        which = signature.framework, signature.layout
        if which not in self._known_layouts:
            self._known_layouts[which] = ArrayLayouts(*which, signature.device)
        return self._known_layouts[which]

    def _failure_lines(
        self, failures: Mapping[tuple[str, str], TrialError], frameworks: Sequence[str], layouts: Sequence[str]
    ) -> str:
        """Return what was tried and why it failed; the axis order with which the function came furthest is first."""
        framework = frameworks[0]
        layout = max(layouts, key=lambda each: failures[framework, each].line)
        axes = "(batch, seq_len, width)" if self._signature.operator == "mha" else LAYOUTS[layout]
        lines = [f"{self._called} was called with {ARRAYS[framework]} {axes}, and {failures[framework, layout]}"]
        if framework == "torch" and OF_DEVICES.search(str(failures[framework, layout])):
            lines.append(device_hint(self._signature.device))
        if others := [each for each in layouts if each != layout]:
            lines.append(f"other axis orders fail too ({', '.join(others)}); name the right one with --layout")
        if others := [ARRAYS[each] for each in frameworks[1:]]:
            lines.append(f"it fails with {' and '.join(others)} too; name the right framework with --framework")
        lines.append("check can judge a function only if one plain call works")
        return "\n  ".join(lines)

    def _tried(self, signature: Signature, sizes: Mapping[str, int]) -> Signature:
        """
        Make plain calls until one works, and return the signature with what it returns and which values it needs.

        An argument for masks without a default gets None only if the answer then is right, or the same as with a mask
        that masks nothing.
        """
        if not signature.always:
            return self._first(_variants(signature), sizes)
        masked = None
        with suppress(TrialError):
            masked = self._first(_with_masks(signature), sizes)
        try:
            without = self._first(_variants(replace(signature, always=())), sizes)
        except TrialError:
            if masked is None:
                raise
            return masked
        if masked is None or (without.operator == "sdpa" and self._is_near(without, sizes)):
            return without
        difference = np.abs(self._output(without, {}, sizes) - self._output(masked, {}, sizes))
        return without if (difference < NEAR).all() else masked

    def _first(self, signatures: Iterable[Signature], sizes: Mapping[str, int]) -> Signature:
        """
        Return the first signature with which a plain call works, with what it returns.

        Raises:
            TrialError: why the first fails, if all do.
        """
        failures = []
        for each in signatures:
            try:
                return self._returning(each, self._reply(each, sizes, {}), sizes)
            except TrialError as failed:
                failures.append(failed)
        raise failures[0]

    def _output(self, signature: Signature, given: Mapping[str, Any], sizes: Mapping[str, int]) -> Array:
        """
        Return the output of a call; given: as in `_reply`.

        Raises:
            TrialError: the call failed, or the output has a wrong shape.
        """
        layouts, result = self._layouts(signature), self._reply(signature, sizes, given)
        self._returning(signature, result, sizes)
        return layouts.output(layouts.parts(result, 1)[0] if layouts.is_tuple(result) else result).float64()

    def _returning(self, signature: Signature, result: Any, sizes: Mapping[str, int]) -> Signature:
        """
        Return the signature with the kind of values that are returned together with the output.

        Raises:
            TrialError: the output does not have the expected shape.
        """
        layouts = self._layouts(signature)
        several = layouts.is_tuple(result)
        parts = layouts.parts(result, 2) if several else (result,)
        if result is None or not parts:
            raise TrialError(f"it returned {'nothing' if result is None else 'an empty tuple'}; return the output")
        try:
            output = layouts.output(parts[0])
        except Exception as error:  # noqa: BLE001 - whatever a foreign object raises
            raise TrialError(f"it did not return an array: {failure_text(error, self._path)}") from None
        expected = _output_shape(signature.operator, sizes)
        if output.shape != expected:
            order = _order(output.shape, signature.operator, expected)
            raise TrialError(f"it returned an array of shape {list(output.shape)}{order}, expected {list(expected)}")
        if not several or signature.has("need_weights") or len(parts) == 1:
            return signature
        return replace(signature, returned=_second(layouts, parts[1], sizes))

    def _reply(self, signature: Signature, sizes: Mapping[str, int], given: Mapping[str, Any], seed: int = SEED) -> Any:
        """
        Make one call; given: role -> tensor, in addition to the defaults of a plain call.

        Raises:
            TrialError: the function raised an exception.
        """
        given = {**_masking_nothing(signature, sizes, self._dtype), **given}
        try:
            layouts = self._layouts(signature)
            call = plain_call(
                signature.operator,
                sizes,
                given,
                seed,
                alias=signature.alias,
                device=signature.device,
                dtype=self._dtype,
            )
            function = self._function
            if signature.built is not None:
                function = Layer(self._function, signature.built, signature.method).made(call)
            values = _values(layouts, signature, call, given)
            keywords = {
                signature.names[role]: values[role]
                for role in signature.by_name
                if values[role] is not None or role not in signature.kept
            }
            return layouts.call(function, [values[role] for role in signature.placed], keywords)
        except BaseException as error:  # noqa: BLE001 - whatever the user's function raises
            line, text = _line(error, self._path)
            refused = text.startswith(("raise", "assert"))
            raise TrialError(f"it raised {failure_text(error, self._path)}", line, refused=refused) from None

    def _is_wide(self, signature: Signature, sizes: Mapping[str, int]) -> bool:
        """Return whether an sdpa call works in which value_dim differs from head_dim; always True for mha."""
        wider = {**sizes, "value_dim": sizes["value_dim"] + 2}
        if signature.operator == "mha":
            return True
        try:
            self._returning(signature, self._reply(signature, wider, {}), wider)
        except TrialError:
            return False
        return True


def device_hint(device: str) -> str:
    """Return what to do about an exception about devices, given the device of the check."""
    fix = "take the device from the tensors that are given (query.device), or name no device"
    other = "; for a function that needs a GPU, add --device cuda" if device == "cpu" else ""
    return f"{PASSED[device]}, so everything that it uses must be there: {fix}{other}"


# Operator -> the axes of its output, in order.
OUTPUT_AXES = {"sdpa": ("batch", "num_heads", "seq_len_q", "value_dim"), "mha": ("batch", "seq_len_q", "output_dim")}


def _order(shape: tuple[int, ...], operator: str, expected: tuple[int, ...]) -> str:
    """Return, in words, the axes of an output that has them in another order; "" if its sizes do not tell them."""
    axes = dict(zip(expected, OUTPUT_AXES[operator], strict=True))
    if sorted(shape) != sorted(axes):
        return ""
    return f", that is ({', '.join(axes[size] for size in shape)})"


def _output_shape(operator: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    if operator == "sdpa":
        return sizes["batch"], sizes["num_heads"], sizes["seq_len_q"], sizes["value_dim"]
    return sizes["batch"], sizes["seq_len_q"], sizes["num_heads"] * sizes["head_dim"]


def _second(layouts: ArrayLayouts, part: Any, sizes: Mapping[str, int]) -> str:
    """Return what is returned together with the output: weights, weights_mean or other."""
    try:
        shape = layouts.weights(part).shape
    except Exception:  # noqa: BLE001 - it is not an array
        return "other"
    batch, heads, q, k = (sizes[name] for name in ("batch", "num_heads", "seq_len_q", "seq_len_k"))
    return {(batch, heads, q, k): "weights", (batch, q, k): "weights_mean"}.get(shape, "other")


def _values(layouts: ArrayLayouts, signature: Signature, call: Call, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all values to pass, by role."""
    query, key, value = layouts.arrays(call)
    sizes = call.facts.sizes
    values = {**DEFAULTS, "query": query, "key": key, "value": value, "inputs": query, "context": key}
    values |= {"num_heads": sizes["num_heads"], "params": layouts.params(call), **layouts.params(call, zeros=True)}
    if "scale" in signature.numbers:
        values["scale"] = float(sizes["head_dim"]) ** -0.5
    for role in call.arguments:
        shape = given[role].shape
        batched = len(shape) > len(("q", "k")) or shape[0] == sizes["batch"]
        if role == "lengths":
            values[role] = layouts.lengths(call, role)
        else:
            values[role] = layouts.mask(call, role, batched=batched, numeric=role in signature.numeric)
    return values


def _variants(signature: Signature) -> Iterator[Signature]:
    """
    Yield the signature, and those with other values for arguments whose name does not tell what they take.

    A scale may have to be a number in every call. A dropout without a default may be a module: None is passed for it.
    """
    variants = [signature]
    if signature.has("dropout_p") and "dropout_p" not in signature.kept and not signature.has(NOTHING):
        variants.append(signature.without("dropout_p"))
    for each in variants:
        yield each
        if "scale" in each.names and "scale" not in each.kept:
            yield replace(each, numbers=("scale",))


def _with_masks(signature: Signature) -> Iterator[Signature]:
    """Yield the signature with each form of a mask that masks nothing."""
    forms = [MaskForm(axes, boolean, not boolean) for boolean in (True, False) for axes in FORMS]
    for form in forms if "mask" in signature.always else forms[:1]:
        yield from _variants(replace(signature, form=form))


def _masking_nothing(signature: Signature, sizes: Mapping[str, int], dtype: str) -> dict[str, Tensor]:
    """Return role -> a mask that masks nothing, for the arguments that need one in every call."""
    found = {}
    for role in signature.always:
        form = MASK_FORMS.get(role, signature.form)
        whole = np.ones([sizes[AXES[axis]] for axis in form.axes])
        if role == "lengths":
            found[role] = Tensor.of(np.full(sizes["batch"], sizes["seq_len_k"], dtype=np.int32))
        else:
            found[role] = Tensor.of(whole > 0) if form.boolean else to_tensor(whole - 1, dtype)
    return found


def plain_sizes(sizes: Sizes) -> dict[str, int]:
    """Return the sizes of a plain call of a function that takes these sizes."""
    head_dim = sizes.head_dim(SIZES["head_dim"])
    queries, keys = sizes.lengths(SIZES["seq_len_q"], SIZES["seq_len_k"])
    heads = sizes.num_heads or SIZES["num_heads"]
    lengths = {"seq_len_q": queries, "seq_len_k": keys}
    return {**SIZES, **lengths, "num_heads": heads, "num_kv_heads": heads, "head_dim": head_dim, "value_dim": head_dim}


def _unequal_and_equal(sizes: Sizes) -> tuple[dict[str, int], ...]:
    """Return the sizes of a plain call, and the same with equal seq_len_q and seq_len_k; only these if they must be."""
    plain = plain_sizes(sizes)
    equal = {**plain, "seq_len_k": plain["seq_len_q"]}
    return (equal,) if sizes.equal else (plain, equal)


def _with_equal_lengths(
    signature: Signature, sizes: Mapping[str, int], failures: Mapping[tuple[str, str], TrialError]
) -> Signature:
    """Return the signature with equal seq_len_q and seq_len_k if the function refuses others; sizes: of what works."""
    failed = failures.get((signature.framework, signature.layout))
    if signature.operator == "mha" or sizes["seq_len_q"] != sizes["seq_len_k"] or not (failed and failed.refused):
        return signature
    return replace(signature, sizes=replace(signature.sizes, equal=True), size_refusal=str(failed))


def plain_call(
    operator: str,
    sizes: Mapping[str, int],
    given: Mapping[str, Any],
    seed: int,
    *,
    alias: Alias = "none",
    device: str = "cpu",
    dtype: str = "float32",
) -> Call:
    """
    Make a plain call; `moved` in `given` is added to key and value at the hidden position.

    alias: which arrays are one. device: where the arrays will be. dtype: of all arrays.
    """
    rng = np.random.default_rng(seed)

    def drawn(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    batch, heads, q, k, dim = (sizes[name] for name in ("batch", "num_heads", "seq_len_q", "seq_len_k", "head_dim"))
    width = heads * dim
    if operator == "sdpa":
        arrays = [drawn(batch, heads, q, dim), drawn(batch, heads, k, dim), drawn(batch, heads, k, sizes["value_dim"])]
    else:
        arrays = [drawn(batch, q, width), drawn(batch, k, width), drawn(batch, k, width)]
    for each in arrays[1:]:
        each[..., HIDDEN, :] += given.get("moved", 0.0)
    params = {name: drawn(width, width) / np.float32(width**0.5) for name in ("wq", "wk", "wv", "wo")}
    query, key, value = (_tensor(each, dtype) for each in arrays)
    return Call(
        Facts(operator, dtype, device, "", ("output",), sizes=sizes, requirements=("no_bias",)),
        value if alias == "qkv" else query,
        key if alias == "none" else value,
        value,
        params={name: _tensor(each, dtype) for name, each in params.items()} if operator == "mha" else {},
        arguments={role: given[role] for role in MASKS if role in given},
    )


def _tensor(array: Any, dtype: str) -> Tensor:
    return to_tensor(round_to(array.astype(np.float64), dtype), dtype)


def _dtypes_of(framework: str) -> tuple[str, ...]:
    """Return the dtypes of arrays: NumPy has no bfloat16; JAX converts float64 unless jax_enable_x64 is set."""
    if framework == "numpy":
        return tuple(dtype for dtype in DTYPES if dtype != "bfloat16")
    if framework != "jax":
        return DTYPES
    import jax  # noqa: PLC0415 - only where the function takes its arrays

    return DTYPES if jax.config.jax_enable_x64 else tuple(dtype for dtype in DTYPES if dtype != "float64")


def _line(error: BaseException, path: str) -> tuple[int, str]:
    """Return the furthest line of the user's file in the traceback of an exception, and the text of the last one."""
    lines = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == path]
    return max((each.lineno or 0 for each in lines), default=0), (lines[-1].line or "") if lines else ""


def failure_text(error: BaseException, path: str) -> str:
    """Return an exception with its message and the line of the user's file that raised it."""
    last = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == path]
    where = f" ({Path(path).name}, line {last[-1].lineno}: {last[-1].line})" if last else ""
    message = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())  # Keras writes in bold
    return f"{type(error).__name__}: {message}{where}" if message else f"{type(error).__name__}{where}"
