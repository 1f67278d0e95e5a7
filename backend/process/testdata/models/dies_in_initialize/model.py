"""Ends the process in initialize, without a word."""

import os


class TritonPythonModel:
    def initialize(self, args):
        os._exit(0)
