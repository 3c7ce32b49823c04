"""
The arithmetic profile that a subject declares: what is rounded where.

Each field names the dtype (a key of UNIT) that a value is rounded to at that step, or is None if nothing is rounded
there. The bound of a cell is derived from these fields and nothing else (docs/tolerance.md section 2).
"""

from dataclasses import dataclass, replace
from typing import Any

# Unit roundoff by dtype name: half the distance from 1 to the next larger number.
UNIT = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "tf32": 2.0**-11,
    # 3xTF32: an operand is cut to a TF32 number, and the rest (at most 2^-10) is rounded to another: an error of 2^-22.
    # The product of the two rests, at most 2^-20, is dropped: half of it is counted for each operand.
    "tf32x3": 3.0 * 2.0**-22,
    # TF32 by truncation: the last 13 bits of a float32 number are dropped, an error of up to 2^-10.
    "tf32_truncated": 2.0**-10,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
}

_FLAGS = ("ftz", "truncated")
_OPTIONAL = ("mm", "pre", "bias_sum")


def _is_error(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


@dataclass(frozen=True)
class Profile:
    """
    Where an implementation rounds, and to what.

    store: inputs, results, and Q, K, V, O between projections. acc: accumulator of every dot product.
    mm: operands of matrix products, if they are rounded more coarsely than stored (tf32, bfloat16, ...). pre: query and
    key after a multiplication by (the root of) the scale. score: logits, after the product, after the scale,
    in a softcap and after a bias. soft: x - max, exp and division. sum: accumulator of the denominator. prob:
    weights before they meet the values. scale: the constant 1/sqrt(head_dim) and those of a softcap. lse: the
    log-sum-exp from which a backward pass recomputes weights. bias_sum: the type in which the gradient of a bias is
    summed over all positions, if coarser than `acc`. exp_ulp: the relative error of exp(x) is (exp_ulp + 2|x|) unit
    roundoffs of `soft`, that of the tanh of a softcap is exp_ulp.
    ftz: float16 subnormals may be flushed to zero (those of wider types always may). truncated: results of matrix
    products are truncated towards zero to `store` and `score` instead of rounded to nearest.
    """

    store: str
    acc: str
    score: str
    soft: str
    sum: str
    prob: str
    scale: str
    lse: str
    mm: str | None = None
    pre: str | None = None
    bias_sum: str | None = None
    exp_ulp: float = 4.0
    ftz: bool = False
    truncated: bool = False

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name in _FLAGS and not isinstance(value, bool):
                raise ValueError(f"profile field {name}: {value!r} is not True or False")
            if name in _FLAGS or (name in _OPTIONAL and value is None):
                continue
            if name == "exp_ulp":
                if not _is_error(value):
                    raise ValueError(f"profile field {name}: {value!r} is not a number of at least 0")
            elif not isinstance(value, str) or value not in UNIT:
                raise ValueError(f"profile field {name}: {value!r} is not one of {', '.join(UNIT)}")

    @classmethod
    def uniform(cls, dtype: str) -> "Profile":
        """Every step rounds to `dtype`: the ordinary arithmetic of float32 and float64."""
        return cls(store=dtype, acc=dtype, score=dtype, soft=dtype, sum=dtype, prob=dtype, scale=dtype, lse=dtype)

    @classmethod
    def fused(cls, dtype: str) -> "Profile":
        """Half-precision inputs and outputs, float32 inside; the weights are rounded before the product with V."""
        inner = "float32"
        return cls(store=dtype, acc=inner, score=inner, soft=inner, sum=inner, prob=dtype, scale=inner, lse=inner)

    @classmethod
    def naive(cls, dtype: str) -> "Profile":
        """Half precision after every operator of a graph; float32 only inside dot products and softmax."""
        inner = "float32"
        return cls(
            store=dtype,
            acc=inner,
            pre=dtype,
            score=dtype,
            soft=inner,
            sum=inner,
            prob=dtype,
            scale=dtype,
            lse=inner,
        )

    @classmethod
    def ordinary(cls, dtype: str) -> "Profile":
        """`uniform` for float64 and float32, `fused` for half precision."""
        return cls.uniform(dtype) if dtype in ("float64", "float32") else cls.fused(dtype)

    def but(self, **fields: Any) -> "Profile":
        """The same arithmetic except for `fields`."""
        return replace(self, **fields)

    def record(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return dict(vars(self))

    @classmethod
    def from_record(cls, fields: dict[str, Any]) -> "Profile":
        """The inverse of `record`."""
        return cls(**fields)
