import pytest

from foster.serving.metrics import COUNTERS, HISTOGRAMS, Metrics


def test_the_text_is_what_prometheus_reads() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    metrics = Metrics()
    metrics.count("foster_requests_total", route="/predict", status="200")
    metrics.count("foster_requests_total", 2, route="/predict", status="429")
    for value in (1.0, 3.0, 3.0, 1000.0):
        metrics.observe("foster_batch_images", value)
    odd = 'a "quoted"\\ name\nof two lines'
    families = {
        family.name: family
        for family in parser.text_string_to_metric_families(
            metrics.text({"foster_bundle_info": (1, {"name": odd, "version": "0"})})
        )
    }
    assert {*COUNTERS, *HISTOGRAMS} <= {*families, *(f"{name}_total" for name in families)}
    requests = {sample.labels["status"]: sample.value for sample in families["foster_requests"].samples}
    assert requests == {"200": 1, "429": 2}
    samples = families["foster_batch_images"].samples
    buckets = {sample.labels["le"]: sample.value for sample in samples if sample.name.endswith("_bucket")}
    assert (buckets["1"], buckets["2"], buckets["4"], buckets["256"], buckets["+Inf"]) == (1, 1, 3, 3, 4)
    assert {sample.name: sample.value for sample in samples if not sample.labels} == {
        "foster_batch_images_sum": 1007,
        "foster_batch_images_count": 4,
    }
    assert families["foster_bundle_info"].samples[0].labels["name"] == odd


def test_the_text_is_exactly_this() -> None:
    metrics = Metrics()
    metrics.count("foster_feedback_total")
    lines = metrics.text({"foster_images_in_work": (3, {})}).splitlines()
    assert "# TYPE foster_feedback_total counter" in lines
    assert "foster_feedback_total 1" in lines
    assert "foster_images_total 0" in lines
    assert "foster_images_in_work 3" in lines
    assert 'foster_batch_seconds_bucket{le="+Inf"} 0' in lines
