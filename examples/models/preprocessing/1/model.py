"""Preprocesses an image file for a classifier, and calls the classifier."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import triton_python_backend_utils as pb_utils

try:
    from PIL import Image
except ImportError:
    Image = None

SIDE = 224
# Of the images that classifiers are usually trained with.
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)

MOST_PIXELS = 1 << 26


def decode(file: bytes) -> np.ndarray:
    """Return the pixels, by height, width and color. Pillow knows most formats; without it, only PPM is read."""
    ppm = re.match(rb"P6\s+(\d+)\s+(\d+)\s+255\s", file)
    if ppm:
        width, height = int(ppm[1]), int(ppm[2])
        if not 0 < width * height <= MOST_PIXELS or len(file) != ppm.end() + 3 * width * height:
            raise ValueError(f"{len(file)} bytes do not hold {width} by {height} pixels")
        return np.frombuffer(file, np.uint8, offset=ppm.end()).reshape(height, width, 3)
    if Image is None:
        raise ValueError("not a PPM image, and Pillow is not installed for the Python of the models")
    try:
        return np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))
    except (OSError, Image.DecompressionBombError) as error:
        raise ValueError("not an image that Pillow can read") from error


def resize(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """Interpolate linearly between the nearest pixels of both directions."""
    image = pixels.astype(np.float32)
    for axis, size in (0, height), (1, width):
        old = image.shape[axis]
        at = np.clip((np.arange(size) + 0.5) * old / size - 0.5, 0, old - 1)
        low = at.astype(int)
        high = np.minimum(low + 1, old - 1)
        share = (at - low).astype(np.float32).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        image = image.take(low, axis) * (1 - share) + image.take(high, axis) * share
    return image


def preprocess(file: bytes) -> np.ndarray:
    """Scale the shorter side to 224, cut out the middle, bring the values to mean 0 and deviation 1."""
    pixels = decode(file)
    height, width = pixels.shape[:2]
    scale = SIDE / min(height, width)
    height, width = max(SIDE, round(height * scale)), max(SIDE, round(width * scale))
    top, left = (height - SIDE) // 2, (width - SIDE) // 2
    middle = resize(pixels, height, width)[top : top + SIDE, left : left + SIDE]
    normal = (middle / 255 - MEAN) / DEVIATION
    return np.ascontiguousarray(normal.transpose(2, 0, 1), np.float32)


class TritonPythonModel:
    """OUTPUT are the scores that the classifier gives each image file of INPUT."""

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        self.classifier = config["parameters"]["classifier"]["string_value"]

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            files = pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()
            try:
                images = np.stack([preprocess(file.tobytes()) for file in files])
            except ValueError as error:
                # Only this request is answered so; the others of the batch go on.
                refused = pb_utils.TritonError(f"INPUT: {error}", pb_utils.TritonError.INVALID_ARG)
                responses.append(pb_utils.InferenceResponse(error=refused))
                continue
            inner = pb_utils.InferenceRequest(
                model_name=self.classifier,
                requested_output_names=["output"],
                inputs=[pb_utils.Tensor("input", images)],
            )
            answer = inner.exec()
            if answer.has_error():
                responses.append(pb_utils.InferenceResponse(error=answer.error()))
                continue
            scores = pb_utils.get_output_tensor_by_name(answer, "output").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", scores)]))
        return responses

    def finalize(self) -> None:
        print("Cleaning up...")
