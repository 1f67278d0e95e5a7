"""Fails in initialize."""


class TritonPythonModel:
    def initialize(self, args):
        raise ValueError("not today")
