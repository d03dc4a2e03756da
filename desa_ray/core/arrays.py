"""Types of the arrays and numbers that compiled kernels take."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
UInt32s = NDArray[np.uint32]
Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]
# Numbers are the kernel's own: a Python integer on the way in, a typed one within.
Integer = int | np.integer[Any]
Real = float | np.floating[Any]
Truth = bool | np.bool_
