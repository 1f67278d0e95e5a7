"""Never returns from initialize."""

import threading


class TritonPythonModel:
    def initialize(self, args):
        threading.Event().wait()
