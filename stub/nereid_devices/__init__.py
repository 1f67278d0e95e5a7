"""The device helper: a process that the server asks for CUDA devices, so that it loads no driver itself.

`helper` speaks with the server, `cuda` counts the devices by the driver's API, `nvml` measures them. Another
such process copies tensors (`copies`).
"""
