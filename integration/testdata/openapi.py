"""Validates the OpenAPI document in a file, and requests against its schemas."""

import json
import sys

from jsonschema import Draft202012Validator, ValidationError
from openapi_spec_validator import OpenAPIV31SpecValidator

with open(sys.argv[1]) as file:
    document = json.load(file)
OpenAPIV31SpecValidator(document).validate()

paths = document["paths"]


def schema(path):
    return paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]


for path, methods in paths.items():
    if path.endswith("/infer"):
        for example in schema(path)["examples"]:
            Draft202012Validator(schema(path)).validate(example)


def refused(path, request):
    try:
        Draft202012Validator(schema(path)).validate(request)
    except ValidationError:
        return
    sys.exit(f"{path}: {request} fits the schema, want it refused")


text = {"name": "TEXT", "datatype": "BYTES", "shape": [2, 1], "data": ["a", "b"]}
infer = "/v2/models/batched/infer"
Draft202012Validator(schema(infer)).validate({"inputs": [text], "outputs": [{"name": "OUT"}]})
refused(infer, {})
refused(infer, {"inputs": []})
refused(infer, {"inputs": [{**text, "name": "TXET"}]})
refused(infer, {"inputs": [{**text, "datatype": "FP32"}]})
refused(infer, {"inputs": [{**text, "shape": [2, 3]}]})
refused(infer, {"inputs": [{**text, "shape": [2]}]})
refused(infer, {"inputs": [text], "outputs": [{"name": "OTU"}]})
Draft202012Validator(schema("/v2/models/batched/generate")).validate({"TEXT": "a", "more": 1})
refused("/v2/models/batched/generate", {"MAYBE": True})

contents = paths["/v2/models/one/infer"]["post"]["requestBody"]["content"]
assert list(contents) == ["application/json"], contents
assert "/v2/models/stream/infer" not in paths and "/v2/models/stream/generate" not in paths
assert "post" in paths["/v2/models/stream/generate_stream"]
assert "/v2/models/odd%20name%20%C3%A9/infer" in paths, sorted(paths)
