"""A function is a model.

    import nereid

    @nereid.model(max_batch_size=32, instances=2)
    def greet(name: str, times: int = 1) -> str:
        return f"Hello {name}! " * times

`nereid serve app.py` serves the functions of a file, and `nereid build app.py --output=models` writes
a model repository for them. See docs/functions.md.

    functions   the decorator, and the inputs and outputs of a function
    kinds       how values of an annotation become tensors, and tensors values
    serving     a TritonPythonModel that calls a function
    build       model repositories
"""

from .functions import model
from .kinds import Array, Image, InputError

__all__ = ["Array", "Image", "InputError", "model"]
