"""Trial calls with masks: they find out which masks a function takes, and with which axes."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from conformance.bridge import Tensor
from conformance.checking.signature import MaskForm, Signature
from conformance.spec.problem import AXES, Array
from conformance.spec.rounding import to_tensor

# Possible axes of a mask, the most general first.
FORMS = (("b", "h", "q", "k"), ("q", "k"), ("b", "q", "k"), ("b", "k"))
# The same for a layer with one head, whose logits have three axes.
FORMS_OF_ONE_HEAD = (("b", "h", "q", "k"), ("b", "q", "k"), ("q", "k"), ("b", "k"))

# Axes of a mask that have their full size in a trial call.
MOST, WHOLE, SPARSE = "bqk", "bhqk", "k"

# The form of the other arguments that hold a mask.
MASK_FORMS = {
    "key_padding_mask": MaskForm(("b", "k")),
    "bias": MaskForm(("b", "h", "q", "k"), boolean=False, added=True),
}

# Index of the key that the mask of a trial call hides.
HIDDEN = 2

# In place of a line: the function returned something.
RETURNED = sys.maxsize


class TrialError(Exception):
    """
    A trial call has no usable reply; the message follows the call in a sentence.

    line: the last line of the user's file that was reached, or RETURNED. refused: whether that line is a raise or an
    assert, so that the function itself refuses the call.
    """

    def __init__(self, message: str, line: int = RETURNED, *, refused: bool = False) -> None:
        super().__init__(message)
        self.line, self.refused = line, refused


class MaskTrial:
    """Makes calls with masks of a function of which a plain call works."""

    def __init__(
        self, output: Callable[[Signature, Mapping[str, Any]], Array], sizes: Mapping[str, int], dtype: str
    ) -> None:
        """
        Begin.

        output: makes a call with further arguments, role -> tensor, and returns its output, or raises TrialError.
        """
        self._output, self._sizes, self._dtype = output, sizes, dtype

    def settled(self, signature: Signature) -> Signature:
        """Return the signature with the form of its masks; an argument that only follows the arrays may be no mask."""
        signature = replace(signature, numeric=self._numeric(signature))
        form, whole = self._form(signature)
        if form is None and signature.mask_by_place:
            signature = signature.without("mask")
        roles = (*(["mask"] if whole else []), *(["bias"] if self._is_bias_whole(signature) else []))
        return replace(signature, form=form or signature.form, whole=roles)

    def _form(self, signature: Signature) -> tuple[MaskForm | None, bool]:
        """
        Return the form of the mask argument: the first axes with which a boolean or an additive mask works.

        Return also whether no axis of it may have size 1, because the function then raises an exception. If it ignores
        such a mask, that is a mistake. The form is None if no call with a mask returns an output of the right shape.
        """
        if not signature.has("mask"):
            return MaskForm(), False
        hides = partial(self._hides, signature, "mask")
        numbers = partial(self._hides, replace(signature, numeric=("mask",)), "mask")
        for axes in FORMS_OF_ONE_HEAD if signature.sizes.num_heads == 1 else FORMS:
            whole = False
            boolean, added = hides(axes, MOST, added=False), hides(axes, MOST, added=True)
            if added and numbers(axes, MOST, added=False):  # (1.0 - mask) * -1e4 is -inf where the mask is
                added = False
            if boolean or added:
                whole = hides(axes, SPARSE, added=not boolean) is None
            elif boolean is None and added is None:
                boolean, added = hides(axes, WHOLE, added=False), hides(axes, WHOLE, added=True)
                whole = True
            if not boolean and added is False and signature.mask != "mask" and self._adds(signature, axes):
                added, boolean = True, boolean is not None and not self._adds_booleans(signature, axes)
            if boolean is not None or added is not None:
                named = "mask" in signature.numeric or (signature.framework == "numpy" and signature.mask == "mask")
                takes_booleans = bool(boolean) or not added or named
                misread = boolean is False and not takes_booleans
                return MaskForm(axes, takes_booleans, bool(added) and not named, misread), whole
        return None, False

    def _numeric(self, signature: Signature) -> tuple[str, ...]:
        """
        Return the masks that take the numbers 1 and 0, but no booleans.

        An example is `scores + (1.0 - mask) * -10000.0` in PyTorch, where the difference of a number and a boolean
        raises an exception. With a mask of 0 and -inf it hides the same keys, but rounds the logits to thousandths.
        """
        found = []
        for role, forms in (("mask", FORMS), ("key_padding_mask", (MASK_FORMS["key_padding_mask"].axes,))):
            for axes in forms if signature.has(role) else ():
                if self._hides(signature, role, axes, MOST, added=False):
                    break
                if self._hides(replace(signature, numeric=(role,)), role, axes, MOST, added=False):
                    found.append(role)
                    break
        return tuple(found)

    def _adds(self, signature: Signature, axes: Sequence[str]) -> bool:
        """
        Return whether zeros as a mask change nothing, and -1 for one key does.

        So the mask is added, though another mistake, such as a softmax over the queries, hides that -inf hides a key.
        """
        lower = np.where(self._attend(axes, MOST), 0.0, -1.0)
        same, other = ((signature, {"mask": to_tensor(each, self._dtype)}) for each in (np.zeros_like(lower), lower))
        plain: tuple[Signature, Mapping[str, Any]] = (signature, {})
        return self._agree(plain, same) is True and self._agree(plain, other) is False

    def _adds_booleans(self, signature: Signature, axes: Sequence[str]) -> bool:
        """Return whether a boolean mask does the same as the numbers 1 and 0."""
        given = {"mask": Tensor.of(self._attend(axes, MOST))}
        return bool(self._agree((signature, given), (replace(signature, numeric=("mask",)), given)))

    def _agree(self, *calls: tuple[Signature, Mapping[str, Any]]) -> bool | None:
        """Return whether two calls have the same output; None if one fails."""
        try:
            one, other = (self._output(signature, given) for signature, given in calls)
        except TrialError:
            return None
        return np.array_equal(one, other, equal_nan=True)

    def _is_bias_whole(self, signature: Signature) -> bool:
        """Return whether the additive argument raises an exception unless all its axes have their full size."""
        hides = partial(self._hides, signature, "bias", FORMS[0], added=True)
        return signature.has("bias") and hides(SPARSE) is None and hides(WHOLE) is not None

    def _hides(self, signature: Signature, role: str, axes: Sequence[str], full: str, *, added: bool) -> bool | None:
        """
        Return whether a mask hides a key, with either meaning of True; None if the call fails.

        full: the axes that have their full size; the others have size 1.
        """
        attend = self._attend(axes, full)
        boolean = (Tensor.of(attend), Tensor.of(~attend))
        masks = (to_tensor(np.where(attend, 0.0, -np.inf), self._dtype),) if added else boolean
        try:
            return any(self._is_blind(signature, {role: mask}) for mask in masks)
        except TrialError:
            return None

    def _attend(self, axes: Sequence[str], full: str) -> Array:
        """Return a boolean mask that hides one key."""
        attend = np.ones([self._sizes[AXES[axis]] if axis in full else 1 for axis in axes], dtype=bool)
        attend[..., HIDDEN] = False
        return attend

    def _is_blind(self, signature: Signature, given: Mapping[str, Tensor]) -> bool:
        """Return whether key and value at the hidden position do not change the output."""
        outputs = [self._output(signature, {**given, "moved": moved}) for moved in (0.0, 1.0)]
        if signature.is_self_attention:  # the moved position is a query too
            outputs = [np.delete(each, HIDDEN, axis=-2) for each in outputs]
        same = np.array_equal(outputs[0], outputs[1], equal_nan=True)
        return same and bool(np.isfinite(outputs[0]).all())
