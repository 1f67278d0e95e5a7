#!/usr/bin/env python3
"""Has resnet50 classify an image over HTTP."""

import argparse
import sys

import numpy as np
import tritonclient.http as triton

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--host", default="localhost")
parser.add_argument("--http-port", type=int, default=8000)
parser.add_argument("--grpc-port", type=int, default=8001, help="not needed")
parser.add_argument("--metrics-port", type=int, default=8002, help="not needed")
parser.add_argument("--image", help="a file that Pillow reads; default a pattern")
parser.add_argument("--expect", help="the class that the image has to be of")
options = parser.parse_args()

side = 224
if options.image:
    from PIL import Image

    pixels = np.asarray(Image.open(options.image).convert("RGB").resize((side, side)), np.float32) / 255
else:
    pixels = (np.indices((side, side)).sum(0)[..., None] * np.array([1, 2, 3]) % 256 / 255).astype(np.float32)
normal = (pixels - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
images = np.stack([normal.transpose(2, 0, 1).astype(np.float32)] * 2)  # a batch of the same image twice

tensor = triton.InferInput("INPUT", images.shape, "FP32")
tensor.set_data_from_numpy(images)
with triton.InferenceServerClient(f"{options.host}:{options.http_port}", network_timeout=300) as client:
    try:
        scores = client.infer("resnet50", [tensor]).as_numpy("OUTPUT")
    except triton.InferenceServerException as error:
        if "is not installed" not in str(error.message()):
            raise
        print(f"SKIP: {error.message()}")
        sys.exit()

if scores.shape != (2, 1000) or not np.isfinite(scores).all() or not np.allclose(scores[0], scores[1], atol=1e-3):
    sys.exit(f"resnet50 example error: OUTPUT has shape {scores.shape}, or differs between images that do not")

name = str(scores[0].argmax())
try:
    from torchvision.models import ResNet50_Weights

    name = ResNet50_Weights.DEFAULT.meta["categories"][int(name)].upper()
except ImportError:
    pass  # then it is the number of the class
print(f"Results is class: {name}")
if options.expect and name != options.expect:
    sys.exit(f"resnet50 example error: the class is {name}, want {options.expect}")
print("PASS: ResNet50 instance kind")
