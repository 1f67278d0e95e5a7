#!/usr/bin/env python3
"""Sends preprocessing an image file over gRPC and receives the color it has most of all."""

from __future__ import annotations

import argparse
import struct
import sys
import zlib

import numpy as np
import tritonclient.grpc as triton

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--host", default="localhost")
parser.add_argument("--http-port", type=int, default=8000, help="not needed")
parser.add_argument("--grpc-port", type=int, default=8001)
parser.add_argument("--metrics-port", type=int, default=8002, help="not needed")
parser.add_argument("--image", help="a file to send; default two that are made here")
options = parser.parse_args()


def ppm(pixels: np.ndarray) -> bytes:
    return b"P6 %d %d 255\n" % (pixels.shape[1], pixels.shape[0]) + pixels.tobytes()


def png(pixels: np.ndarray) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = pixels.shape[:2]
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits each of red, green and blue
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def painted(color: list[int]) -> np.ndarray:
    pixels = np.random.default_rng(1).integers(0, 60, (200, 300, 3))  # dark noise, and a field in the middle
    pixels[20:180, 40:260] = color
    return pixels.astype(np.uint8)


files = [("yellow.ppm", ppm(painted([250, 240, 10])), "YELLOW"), ("blue.png", png(painted([5, 20, 230])), "BLUE")]
if options.image:
    with open(options.image, "rb") as file:
        files = [(options.image, file.read(), "")]

with triton.InferenceServerClient(f"{options.host}:{options.grpc_port}") as client:
    for name, data, want in files:
        array = np.frombuffer(data, np.uint8).reshape(1, -1)
        tensor = triton.InferInput("INPUT", array.shape, "UINT8")
        tensor.set_data_from_numpy(array)
        best = triton.InferRequestedOutput("OUTPUT", class_count=1)  # the server looks up the label
        try:
            answer = client.infer("preprocessing", [tensor], outputs=[best])
        except triton.InferenceServerException as error:
            if "is not installed" not in str(error.message()):
                raise
            print(f"SKIP: {name}: {error.message()}")
            continue
        score, _, label = answer.as_numpy("OUTPUT")[0, 0].decode().split(":")
        print(f"{name}: {score}")
        print(f"Results is class: {label}")
        if want and label != want:
            sys.exit(f"preprocessing example error: {name} is {label}, want {want}")
print("PASS: preprocessing")
