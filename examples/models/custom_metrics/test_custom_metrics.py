"""A model's own metric and its log."""

from __future__ import annotations

from pathlib import Path

from nereid_testing import Server

HERE = Path(__file__).parent


def test_latency_is_counted() -> None:
    with Server() as server:
        model = server.load(HERE)
        labels = {"model": "custom_metrics", "version": "1"}
        assert server.metric("requests_process_latency_ns", labels) == 0
        model.infer({"INPUT0": [1] * 4, "INPUT1": [2] * 4})
        first = server.metric("requests_process_latency_ns", labels)
        model.infer({"INPUT0": [1] * 4, "INPUT1": [2] * 4})
        assert isinstance(first, float) and first > 0
        assert server.logs[0].message == f"Cumulative requests processing latency: {first}"
