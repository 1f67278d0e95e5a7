import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """Sends the numbers from 0 up to COUNT. HOW selects the way: words, and a path for "mark"."""

    def execute(self, requests):
        for request in requests:
            count = int(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0])
            how = pb_utils.get_input_tensor_by_name(request, "HOW").as_numpy()[0].decode().split()
            if "thread" in how:
                threading.Thread(target=self.send, args=(request.get_response_sender(), count, how)).start()
            else:
                self.send(request.get_response_sender(), count, how)

    def send(self, sender, count, how):
        mark = how[-1] if how else ""
        for number in range(count):
            if sender.is_cancelled():
                open(mark + ".cancelled", "w").close()
                error = pb_utils.TritonError("as you like", pb_utils.TritonError.CANCELLED)
                sender.send(pb_utils.InferenceResponse(error=error), FINAL)
                return
            if "large" in how:
                array = np.full(100000, number, np.int32)
            else:
                array = np.array([number], np.int32)
            response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)])
            if "fails" in how and number == 1:
                response = pb_utils.InferenceResponse(error=pb_utils.TritonError("one is wrong"))
            sender.send(response, FINAL if "flagged" in how and number == count - 1 else 0)
            if "counted" in how:
                with open(mark + ".count", "w") as file:
                    file.write(str(number + 1))
            if "slow" in how:
                time.sleep(0.005)
        if "flagged" not in how:
            sender.send(flags=FINAL)
