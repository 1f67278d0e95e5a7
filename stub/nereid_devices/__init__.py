"""The device helper: a process that reports CUDA devices, so that the server loads no driver.

`helper` communicates with the server, `cuda` enumerates the devices through the driver's API,
`nvml` measures them. A second such process copies tensors (`copies`).
"""
