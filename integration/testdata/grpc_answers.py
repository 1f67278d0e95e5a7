"""Sends good and bad requests over gRPC and prints a JSON object of the answers by name: grpc_answers.py <host:port>"""

import json
import re
import struct
import sys

import grpc
from google.protobuf import json_format
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

channel = grpc.insecure_channel(sys.argv[1])
stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
answers = {}
FOUR = struct.pack("<4f", 1, 2, 3, 4)


def call(name, method, request):
    try:
        answer = json_format.MessageToDict(method(request, timeout=30), preserving_proto_field_name=True)
        for model in answer.get("model_stats", []):
            model.pop("memory_usage", None)  # the memory of processes differs between any two servers
        text = json.dumps(answer, sort_keys=True)
        answers[name] = re.sub(r'"(ns|last_inference)": "\d+"', r'"\1": "N"', text)
    except grpc.RpcError as error:
        answers[name] = f"{error.code().name}: {error.details()}"


def infer(name, model, inputs, raw=(), **fields):
    request = pb.ModelInferRequest(model_name=model, raw_input_contents=list(raw), **fields)
    for tensor_name, datatype, shape, contents in inputs:
        tensor = request.inputs.add(name=tensor_name, datatype=datatype, shape=shape)
        for field, values in contents.items():
            getattr(tensor.contents, field).extend(values)
    call(name, stub.ModelInfer, request)


call("live", stub.ServerLive, pb.ServerLiveRequest())
call("ready", stub.ServerReady, pb.ServerReadyRequest())
for model, version in (("fixed", ""), ("fixed", "1"), ("fixed", "2"), ("fixed", "x"), ("fixed", "-1"), ("none", ""), ("none", "1"), ("", "")):
    for method, request in (
        (stub.ModelReady, pb.ModelReadyRequest), (stub.ModelMetadata, pb.ModelMetadataRequest),
        (stub.ModelConfig, pb.ModelConfigRequest), (stub.ModelStatistics, pb.ModelStatisticsRequest),
    ):
        call(f"{request.__name__} {model} {version}", method, request(name=model, version=version) if model or version else request(name=""))
for model in ("batch", "labels", "reshape", "two", "versions", "id_string"):
    call(f"config {model}", stub.ModelConfig, pb.ModelConfigRequest(name=model))
    call(f"metadata {model}", stub.ModelMetadata, pb.ModelMetadataRequest(name=model))
call("index", stub.RepositoryIndex, pb.RepositoryIndexRequest())
call("ready index", stub.RepositoryIndex, pb.RepositoryIndexRequest(ready=True))
call("load", stub.RepositoryModelLoad, pb.RepositoryModelLoadRequest(model_name="fixed"))
call("unload", stub.RepositoryModelUnload, pb.RepositoryModelUnloadRequest(model_name="fixed"))

X = [("INPUT0", "FP32", [4], {})]
infer("raw", "id_fp32", X, [FOUR])
infer("raw with id", "id_fp32", X, [FOUR], id="abc")
infer("raw wrong size", "id_fp32", X, [FOUR[:12]])
infer("raw too many", "id_fp32", X, [FOUR, FOUR])
infer("raw missing", "two", [("INPUT0", "INT32", [1], {}), ("INPUT1", "INT32", [1], {})], [b"\1\0\0\0"])
infer("no contents", "id_fp32", X)
infer("raw and typed", "id_fp32", [("INPUT0", "FP32", [4], {"fp32_contents": [1, 2, 3, 4]})], [FOUR])
for datatype, field, values in (
    ("BOOL", "bool_contents", [True, False]), ("INT8", "int_contents", [-128, 127]), ("INT16", "int_contents", [-32768, 5]),
    ("INT32", "int_contents", [-(2**31), 7]), ("INT64", "int64_contents", [-(2**63), 7]), ("UINT8", "uint_contents", [255, 0]),
    ("UINT16", "uint_contents", [65535, 0]), ("UINT32", "uint_contents", [2**32 - 1, 0]), ("UINT64", "uint64_contents", [2**64 - 1, 0]),
    ("FP32", "fp32_contents", [1.5, -2]), ("FP64", "fp64_contents", [1.5, -2]), ("BYTES", "bytes_contents", [b"", b"\xff\0x"]),
):
    model = "id_" + datatype.lower().replace("bytes", "string")
    infer(f"typed {datatype}", model, [("INPUT0", datatype, [2], {field: values})])
    infer(f"typed {datatype} too few", model, [("INPUT0", datatype, [3], {field: values})])
    other = "fp64_contents" if field != "fp64_contents" else "fp32_contents"
    infer(f"typed {datatype} in {other}", model, [("INPUT0", datatype, [2], {other: [1, 2]})])
infer("typed FP16", "id_fp16", [("INPUT0", "FP16", [1], {"fp32_contents": [1]})])
infer("raw FP16", "id_fp16", [("INPUT0", "FP16", [1], {})], [b"\0\x3c"])
infer("two typed fields", "id_fp32", [("INPUT0", "FP32", [1], {"fp32_contents": [1], "int_contents": [1]})])
infer("unknown model", "none", X, [FOUR])
infer("no model", "", X, [FOUR])
infer("version", "versions", X, [FOUR], model_version="1")
infer("missing version", "versions", X, [FOUR], model_version="2")
infer("bad version", "versions", X, [FOUR], model_version="x")
infer("other type", "id_fp32", [("INPUT0", "INT32", [4], {})], [FOUR])
infer("unknown type", "id_fp32", [("INPUT0", "FP99", [4], {})], [FOUR])
infer("unknown input", "id_fp32", [("OTHER", "FP32", [4], {})], [FOUR])
infer("input twice", "id_fp32", X + X, [FOUR, FOUR])
infer("no inputs", "id_fp32", [])
infer("negative shape", "id_fp32", [("INPUT0", "FP32", [-1], {})], [FOUR])
infer("scalar", "id_fp32", [("INPUT0", "FP32", [], {})], [FOUR[:4]])
infer("huge shape", "id_fp32", [("INPUT0", "FP32", [2**62, 8], {})], [FOUR])
infer("wrong rank", "id_fp32", [("INPUT0", "FP32", [1, 4], {})], [FOUR])
infer("empty", "id_fp32", [("INPUT0", "FP32", [0], {})], [b""])
infer("batch", "batch", [("INPUT0", "FP32", [2, 2], {})], [FOUR])
infer("batch too large", "batch", [("INPUT0", "FP32", [5, 2], {})], [FOUR * 2 + FOUR[:8]])
infer("reshape", "reshape", [("INPUT0", "FP32", [4, 1], {})], [FOUR])
infer("strings cut", "id_string", [("INPUT0", "BYTES", [2], {})], [b"\3\0\0\0abc\2\0\0\0d"])
infer("strings too many", "id_string", [("INPUT0", "BYTES", [1], {})], [b"\3\0\0\0abc\2\0\0\0de"])
Output = pb.ModelInferRequest.InferRequestedOutputTensor
infer("output", "id_fp32", X, [FOUR], outputs=[Output(name="OUTPUT0")])
infer("unknown output", "id_fp32", X, [FOUR], outputs=[Output(name="OTHER")])
infer("output twice", "id_fp32", X, [FOUR], outputs=[Output(name="OUTPUT0"), Output(name="OUTPUT0")])
for count in (1, 2, 9, 0, -1):
    wanted = Output(name="OUTPUT0")
    wanted.parameters["classification"].int64_param = count
    infer(f"classification {count}", "labels", X, [FOUR], outputs=[wanted])
wanted = Output(name="OUTPUT0")
wanted.parameters["classification"].string_param = "x"
infer("classification text", "labels", X, [FOUR], outputs=[wanted])
for name, field, value in (
    ("a", "int64_param", 1), ("a", "string_param", "x"), ("a", "bool_param", True), ("a", "double_param", 1.5), ("triton_x", "int64_param", 1),
    ("timeout", "string_param", "x"), ("priority", "string_param", "x"), ("sequence_id", "int64_param", 3), ("sequence_id", "bool_param", True),
):
    request = pb.ModelInferRequest(model_name="id_fp32", raw_input_contents=[FOUR])
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[4])
    setattr(request.parameters[name], field, value)
    call(f"parameter {name} {field}", stub.ModelInfer, request)
for model in ("raises", "raises_triton", "error_response", "returns_too_few", "returns_numbers", "sys_exit"):
    infer(f"model {model}", model, [("INPUT0", "FP32", [1], {"fp32_contents": [-1]})])

for name, requests in {
    "stream": [("id_fp32", FOUR, "1")], "stream error": [("none", FOUR, "2")], "stream bad": [("id_fp32", FOUR[:3], "3")],
}.items():
    def messages():
        for model, raw, ident in requests:
            request = pb.ModelInferRequest(model_name=model, id=ident, raw_input_contents=[raw])
            request.inputs.add(name="INPUT0", datatype="FP32", shape=[4])
            yield request
    try:
        answers[name] = [
            json.dumps(json_format.MessageToDict(m, preserving_proto_field_name=True), sort_keys=True)
            for m in stub.ModelStreamInfer(messages(), timeout=30)
        ]
    except grpc.RpcError as error:
        answers[name] = f"{error.code().name}: {error.details()}"

print(json.dumps(answers))
