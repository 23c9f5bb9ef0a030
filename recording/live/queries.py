"""What a controller of the autoscaling task asks Prometheus about a live service (exporter.py)."""

from typing import Any

WINDOW = "15s"  # of rates: a step
MIB = 2**20


def signals(service: str, window: str = WINDOW) -> dict[str, Any]:
    """The part `signals` of a controller's file: input -> query, or query and scale. window: of rates."""
    one = f'{{service="{service}"}}'

    def rate(name: str) -> str:
        return f"rate({name}{one}[{window}])"

    buckets = f'sum by (le) (rate(service_latency_seconds_bucket{one}[{window}]))'
    return {
        "rate_rps": rate("service_requests_total"),
        "served_share": f"1 - {rate('service_failures_total')} / {rate('service_requests_total')}",
        "p99_ms": {"query": f"histogram_quantile(0.99, {buckets})", "scale": 1000},
        "cpu_used_cores": rate("service_cpu_seconds_total"),
        "cpu_utilization": f"{rate('service_cpu_seconds_total')} / (avg_over_time(service_cpu_limit_cores{one}"
                           f"[{window}]) * avg_over_time(service_ready_replicas{one}[{window}]))",
        "memory_used_mib": {"query": f"service_memory_bytes{one}", "scale": 1 / MIB},
        "memory_utilization": f"service_memory_bytes{one} / service_memory_limit_bytes{one}",
    }


def newest(service: str) -> str:
    """Unix time of the newest sample."""
    return f'timestamp(service_requests_total{{service="{service}"}})'
