import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from servers import serving

FILE = Path(__file__).parents[2] / "benchmarks" / "serving.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    specification = importlib.util.spec_from_file_location("serving_benchmark", FILE)
    assert specification
    assert specification.loader
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_clients_measure_a_real_server(benchmark: ModuleType, small_bundle: Path, tmp_path: Path) -> None:
    body = benchmark.request_body(64, 3)
    with serving(small_bundle, tmp_path) as server:
        load = benchmark.ask(server.port, body, 3, 4, 0.2)
    assert load.requests_a_second > 0
    assert load.images_a_second == pytest.approx(3 * load.requests_a_second)
    assert 0 < load.p50 <= load.p95


def test_the_ratio_is_that_of_neighbours_in_time(benchmark: ModuleType) -> None:
    def loads(*rates: float) -> list[object]:
        return [benchmark.Load(rate, rate, 1.0, 2.0) for rate in rates]

    found = benchmark.summary({"batched": loads(30.0, 20.0, 10.0), "alone": loads(10.0, 10.0, 10.0)})
    assert found["batched_over_alone"] == 2.0
    assert found["batched"]["requests_a_second"] == 20.0
    # A machine that became slow in the middle slows both of a pair.
    assert benchmark.summary({"batched": loads(30.0, 3.0), "alone": loads(10.0, 1.0)})["batched_over_alone"] == 3.0
