"""Stands in for BentoML: decorators that leave a class as it is."""


def service(**options):
    assert set(options) <= {"workers", "traffic", "resources"}, options
    return lambda cls: cls


def api(**options):
    assert set(options) <= {"batchable", "max_batch_size", "max_latency_ms"}, options
    return lambda function: function
