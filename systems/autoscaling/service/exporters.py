"""What exporters call their metrics, and by which labels series belong to a service: tables, the best first.

Of a metric only those series count of which a label names the service; which labels may do that is part of the tables
too, the most specific first.
"""

import re
from dataclasses import dataclass

MIB = 2.0**-20
POD = "$name-([a-z0-9]+-[a-z0-9]{5}|[0-9]+)"  # of a Deployment (its last part always has five characters), or a set
# How a label's value names a service where it is not the bare name
VALUES = {
    "pod": POD, "exported_pod": POD, "kubernetes_pod_name": POD,
    "instance": "$name(-[a-z0-9]+-[a-z0-9]{5}|-[0-9]+)?([.:].*)?",
    "job": "(.*/)?$name", "exported_job": "(.*/)?$name",  # OpenTelemetry: namespace/name
    "service": "$name(@.*)?|$space-$name-[a-z0-9]+@kubernetes.*",  # Traefik: name@provider
    "exported_service": "$name(@.*)?|$space-$name-[a-z0-9]+@kubernetes.*",
    "envoy_cluster_name": "$name|$space[/_]$name[/_].*|outbound[|].*[|]$name[.].*",  # Contour, Istio
    "name": "$name([-_][0-9]+)?",  # of a Docker container
    "id": "(/.*)?/$name([.]service)?"}  # of a control group
CHANGING = ("pod", "exported_pod", "kubernetes_pod_name", "instance")  # labels whose values come and go with replicas
OWN = ("deployment", "workload", "app", "app_kubernetes_io_name", "application", "service_name", "exported_service",
        "service", "exported_job", "job", "exported_pod", "pod", "kubernetes_pod_name", "instance")
NAMESPACES = ("destination_workload_namespace", "exported_namespace", "namespace", "kubernetes_namespace")
SIDECARS = ("", "POD", "istio-proxy", "linkerd-proxy")


@dataclass(frozen=True)
class Metric:
    """What is known of an exporter's metric.

    scale: of a histogram, ms over its unit. labels: those that can name the service. only: labels that its series must
    have. namespaces: labels of the service's namespace; empty where it is that of a proxy which serves all namespaces.
    """

    scale: float = 1.0
    labels: tuple[str, ...] = OWN
    only: tuple[tuple[str, str], ...] = ()
    namespaces: tuple[str, ...] = NAMESPACES


PODS = ("exported_pod", "pod", "container_label_com_docker_compose_service", "name", "id")
DEPLOYMENTS = ("exported_deployment", "deployment")
BACKEND = Metric(1.0, ("proxy", "backend"), namespaces=())
CLUSTER = Metric(1.0, ("envoy_cluster_name",), namespaces=())
INBOUND = Metric(1.0, ("deployment", "statefulset", "app", "exported_pod", "pod"), (("direction", "inbound"),))

HISTOGRAMS = {
    "nginx_ingress_controller_request_duration_seconds": Metric(1000.0, ("exported_service", "service", "ingress")),
    "istio_request_duration_milliseconds": Metric(
        1.0, ("destination_workload", "destination_service_name"), (("reporter", "destination"),)),
    "response_latency_ms": INBOUND,  # Linkerd
    "envoy_cluster_upstream_rq_time": CLUSTER,
    "traefik_service_request_duration_seconds": Metric(1000.0, ("exported_service", "service"), namespaces=()),
    "http_server_request_duration_seconds": Metric(1000.0),  # OpenTelemetry, also the next
    "http_server_duration_milliseconds": Metric(),
    "http_server_requests_seconds": Metric(1000.0),  # Micrometer
    "http_request_duration_seconds": Metric(1000.0),
    "http_request_duration_milliseconds": Metric(),
    "http_request_duration_ms": Metric(),
    "grpc_server_handling_seconds": Metric(1000.0)}
TIMERS = ("(.*(request|response|latency|duration|handling).*_(seconds|milliseconds|ms)|"
           "envoy_cluster_upstream_rq_time)_count")
COUNTERS = {
    "haproxy_backend_http_requests_total": BACKEND, "haproxy_backend_http_responses_total": BACKEND,
    "envoy_cluster_upstream_rq_xx": CLUSTER, "response_total": INBOUND,
    "http_server_requests_total": Metric(), "http_requests_total": Metric(), "grpc_server_handled_total": Metric()}
COUNTED = ".*(request|response)s?_total|grpc_server_handled_total|envoy_cluster_upstream_rq_xx"
# Of unlisted metrics: what a service asks of others, and what its runtime does
NOT_LOAD = re.compile(r"(^|_)(client|db|sql|cache|queue|gc)_|^(go|jvm|nodejs|process|promhttp|rest|scrape|workqueue)_")

HTTP = ("[1-5]..", "5..")  # 503 or 5xx; how a class is written, and how one is that is not served
WORDS = ("(?i)success|ok|failure|error|fail(ed)?", "(?i)failure|error|fail(ed)?")
CLASSES = (("classification", *WORDS), *((label, *HTTP) for label in (
    "code", "status", "status_code", "http_status_code", "response_code", "http_response_status_code")),
    ("envoy_response_code_class", "[1-5]", "5"),
    ("grpc_code", "[A-Za-z]+", "Unknown|DeadlineExceeded|Unimplemented|Internal|Unavailable|DataLoss"),
    ("rpc_grpc_status_code", "[0-9]+", "2|4|12|13|14|15"), ("status", *WORDS))
PATHS = ("handler", "path", "uri", "route", "http_route", "grpc_service")
CHECKS = "/(health|healthz|livez|readyz|-/healthy|-/ready|metrics|actuator/.*)|grpc[.]health[.]v1[.]Health"

CONTAINER, DEPLOYMENT = Metric(labels=PODS), Metric(labels=DEPLOYMENTS)
# signal, metric, what is known of it, PromQL ($x: the metric's series, $of: their labels), scale
RESOURCES = (
    ("cpu_used_cores", "container_cpu_usage_seconds_total", CONTAINER, "sum(rate($x[{window}]))", 1.0),
    ("memory_used_mib", "container_memory_working_set_bytes", CONTAINER, "avg($x)", MIB),
    ("cpu_limit_cores", "kube_pod_container_resource_limits", CONTAINER,
     'avg(kube_pod_container_resource_limits{resource="cpu",$of})', 1.0),
    ("memory_limit_mib", "kube_pod_container_resource_limits", CONTAINER,
     'avg(kube_pod_container_resource_limits{resource="memory",$of})', MIB),
    ("cpu_limit_cores", "container_spec_cpu_quota", CONTAINER,
     "avg($x > 0) / avg(container_spec_cpu_period{$of})", 1.0),
    ("memory_limit_mib", "container_spec_memory_limit_bytes", CONTAINER, "avg($x > 0)", MIB),
    ("replicas", "kube_deployment_spec_replicas", DEPLOYMENT, "max($x)", 1.0),
    ("ready_replicas", "kube_deployment_status_replicas_ready", DEPLOYMENT, "max($x)", 1.0),
    ("cpu_used_cores", "process_cpu_seconds_total", Metric(), "sum(rate($x[{window}]))", 1.0),
    ("cpu_used_cores", "process_cpu_time_seconds_total", Metric(), "sum(rate($x[{window}]))", 1.0),  # OpenTelemetry
    ("cpu_used_cores", "process_cpu_time_ns_total", Metric(), "sum(rate($x[{window}]))", 1e-9),  # Micrometer
    ("memory_used_mib", "process_resident_memory_bytes", Metric(), "avg($x)", MIB),
    ("memory_used_mib", "process_memory_usage_bytes", Metric(), "avg($x)", MIB),  # OpenTelemetry
    ("replicas", "up", Metric(), "count($x)", 1.0),
    ("ready_replicas", "up", Metric(), "sum($x)", 1.0))  # 0, not nothing, where none is up
SHARES = {"cpu_utilization": ("cpu_used_cores", "ready_replicas", "cpu_limit_cores"),
           "memory_utilization": ("memory_used_mib", "memory_limit_mib")}

NO_LOAD = ("no histogram or counter of its requests has a label with its name; export a histogram of the time that "
            "requests take, such as http_request_duration_seconds")
MISSING = {
    "rate_rps": NO_LOAD, "p99_ms": NO_LOAD,
    "served_share": "no metric of its requests has a label of the response's class, such as code or status",
    "cpu_used_cores": "no container_cpu_usage_seconds_total (cAdvisor) or process_cpu_seconds_total of it",
    "memory_used_mib": "no container_memory_working_set_bytes (cAdvisor) or process_resident_memory_bytes of it",
    "cpu_limit_cores": "no kube_pod_container_resource_limits (kube-state-metrics) or container_spec_cpu_quota of it",
    "memory_limit_mib": "no kube_pod_container_resource_limits (kube-state-metrics) or "
                        "container_spec_memory_limit_bytes of it",
    "replicas": "no kube_deployment_spec_replicas (kube-state-metrics) and no scraped targets of it",
    "ready_replicas": "no kube_deployment_status_replicas_ready (kube-state-metrics) and no scraped targets of it",
    **dict.fromkeys(SHARES, "what is used and what is set would have to be known"),
    **dict.fromkeys(("io_utilization", "network_utilization"), "not looked for: it is fixed at 0")}
