"""Types of PyTensor graphs for annotations, and its functions where it does not annotate them."""

from typing import Any

import pytensor.tensor
from pytensor.compile import sharedvalue
from pytensor.graph.basic import Apply, Variable

__all__ = ["AnyVariable", "Node", "Tensor", "pt", "shared", "stored_value"]

AnyVariable = Variable[Any, Any]
Node = Apply[Any]
# a tensor that is computed with: PyTensor annotates neither its methods nor its operators
Tensor = Any
pt: Any = pytensor.tensor  # most of its functions are not annotated either
shared: Any = sharedvalue.shared


def stored_value(variable: Tensor) -> Any:
    """Return the value of a shared variable, not a copy of it."""
    return variable.get_value(borrow=True)
