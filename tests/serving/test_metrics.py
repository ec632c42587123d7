"""What Prometheus reads."""

from prometheus_client.parser import text_string_to_metric_families

from foster.serving.metrics import Metrics


def test_the_text_is_what_prometheus_reads_and_each_server_has_its_own() -> None:
    metrics, other = Metrics(), Metrics()
    metrics.requests.labels("/predict", 200).inc()
    metrics.requests.labels("/predict", 429).inc(2)
    for value in (1.0, 3.0, 3.0, 1000.0):
        metrics.batch_images.observe(value)
    odd = 'a "quoted"\\ name\nof two lines'
    metrics.bundle.info({"name": odd, "version": "0"})
    families = {family.name: family for family in text_string_to_metric_families(metrics.text())}
    requests = {sample.labels["status"]: sample.value for sample in families["foster_requests"].samples}
    assert requests == {"200": 1, "429": 2}
    samples = families["foster_batch_images"].samples
    buckets = {float(sample.labels["le"]): sample.value for sample in samples if sample.name.endswith("_bucket")}
    assert [buckets[bound] for bound in (1, 2, 4, 256, float("inf"))] == [1, 1, 3, 3, 4]
    assert {sample.name: sample.value for sample in samples if not sample.labels} == {
        "foster_batch_images_sum": 1007,
        "foster_batch_images_count": 4,
    }
    assert families["foster_bundle_info"].samples[0].labels["name"] == odd
    lines = other.text().splitlines()
    assert "# TYPE foster_feedback_total counter" in lines
    assert {"foster_feedback_total 0.0", "foster_images_total 0.0", "foster_images_in_work 0.0"} <= {*lines}
    assert not any("_created" in line for line in lines)
