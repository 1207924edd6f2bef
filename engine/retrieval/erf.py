"""The error function of float32 arrays, where scipy is not installed.

The rational approximations of Cody (1969) as Moshier's Cephes has them, in float64: rounded to float32, the same bits
as ``scipy.special.erf``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..base.arrays import Float32s, Float64s

_SMALL = (
    (
        9.60497373987051638749, 90.0260197203842689217, 2232.00534594684319226, 7003.32514112805075473,
        55592.3013010394962768,
    ),
    (
        1.0, 33.5617141647503099647, 521.357949780152679795, 4594.32382970980127987, 22629.0000613890934246,
        49267.3942608635921086,
    ),
)  # fmt: skip
_LARGE = (
    (
        2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687, 48.6371970985681366614,
        196.520832956077098242, 526.445194995477358631, 934.528527171957607540, 1027.55188689515710272,
        557.535335369399327526,
    ),
    (
        1.0, 13.2281951154744992508, 86.7072140885989742329, 354.937778887819891062, 975.708501743205489753,
        1823.90916687909736289, 2246.33760818710981792, 1656.66309194161350182, 557.535340817727675546,
    ),
)  # fmt: skip
_FLAT = 7.9
"""From here on it is 1 to the last bit of a double."""


def erf(x: Float32s) -> Float32s:
    """erf(x) of every element, in the shape of ``x``."""
    wide = x.astype(np.float64)
    size = np.abs(wide)
    found, small = np.empty_like(wide), size < 1
    near, far = wide[small], np.minimum(size[~small], _FLAT)
    found[small] = near * _ratio(_SMALL, near * near)
    found[~small] = np.copysign(1 - np.exp(-far * far) * _ratio(_LARGE, far), wide[~small])
    return found.astype(np.float32)


def _ratio(polynomials: tuple[Sequence[float], Sequence[float]], x: Float64s) -> Float64s:
    above, below = (_polynomial(coefficients, x) for coefficients in polynomials)
    return above / below


def _polynomial(coefficients: Sequence[float], x: Float64s) -> Float64s:
    """By Horner's rule, the highest power first."""
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total *= x
        total += coefficient
    return total
