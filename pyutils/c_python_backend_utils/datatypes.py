"""Data types of tensors: Triton's numbers, numpy's dtypes, DLPack's codes."""

from __future__ import annotations

import functools

import numpy as np

BOOL = 1
BYTES = 13
BF16 = 14

#: The dtype of a tensor's array by Triton's number; numpy lacks BF16.
NUMPY: tuple[np.dtype | None, ...] = (
    None,
    np.dtype(np.bool_),
    np.dtype(np.uint8),
    np.dtype(np.uint16),
    np.dtype(np.uint32),
    np.dtype(np.uint64),
    np.dtype(np.int8),
    np.dtype(np.int16),
    np.dtype(np.int32),
    np.dtype(np.int64),
    np.dtype(np.float16),
    np.dtype(np.float32),
    np.dtype(np.float64),
    np.dtype(np.object_),
    None,
)

#: The dtype that stores a tensor's bytes: like NUMPY, but 16-bit integers for BF16.
STORAGE: tuple[np.dtype | None, ...] = (*NUMPY[:13], None, np.dtype(np.uint16))

#: Triton's number of a dtype. Platform aliases (longlong, intc) equal one of the keys; dtypes in
#: another byte order do not.
CODES: dict[np.dtype, int] = {dtype: code for code, dtype in enumerate(NUMPY) if dtype is not None}

#: The name of numpy's dtype for BF16, which the package ml_dtypes adds.
BFLOAT16 = "bfloat16"


@functools.lru_cache(maxsize=None)
def bfloat16() -> np.dtype | None:
    """Return numpy's dtype for BF16, or None if the package ml_dtypes is not installed."""
    try:
        import ml_dtypes  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    dtype: np.dtype = np.dtype(ml_dtypes.bfloat16)
    return dtype


#: DLPack's (code, bits) by Triton's number, None for types that DLPack lacks.
DLPACK: tuple[tuple[int, int] | None, ...] = (
    None,
    (6, 8),
    (1, 8),
    (1, 16),
    (1, 32),
    (1, 64),
    (0, 8),
    (0, 16),
    (0, 32),
    (0, 64),
    (2, 16),
    (2, 32),
    (2, 64),
    None,
    (4, 16),
)

FROM_DLPACK: dict[tuple[int, int], int] = {pair: code for code, pair in enumerate(DLPACK) if pair is not None}
