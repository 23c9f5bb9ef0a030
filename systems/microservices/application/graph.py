"""The application as data: a shop whose services call each other in sequence, in parallel or in the background.

What the programs of this room run, what the recording's places are called, and what a simulator may take its graph
from. Workflow patterns as in thesis, section 3.2.2. A call is written "service.operation".

nginx takes the requests from outside; frontend, which makes the pages, and checkout are the ones that coordinate;
redis and mariadb answer last. `analytics` and `notification` work in the background alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

FRONT, ENTRY = "nginx", "frontend"
STORES = ("redis", "mariadb")
TABLE_ROWS = 100_000


@dataclass(frozen=True)
class Work:
    """What a service does for one call of an operation: first its own kernel, then what it calls.

    Attributes:
        amount: of its kernel, in the kernel's unit (kernels.py).
        stages: one after the other; the calls of a stage go out at the same time.
        background: calls whose answers it does not wait for.
        answer_kib: size of its answer, KiB.
    """

    amount: float = 0.0
    stages: tuple[tuple[str, ...], ...] = ()
    background: tuple[str, ...] = ()
    answer_kib: int = 1


@dataclass(frozen=True)
class Service:
    """One service, a process in a control group of its own.

    Attributes:
        kernel: of the work that is its own (key of kernels.KERNELS), or "" for Debian's servers.
        operations: what it can be asked for.
        cpu_limit_cores: quota of its control group, cores.
        disk_operations: reads and writes of the disk that an average call causes; 0 where it has nothing on disk.
    """

    kernel: str
    operations: Mapping[str, Work] = field(default_factory=dict)
    cpu_limit_cores: float = 0.3
    disk_operations: float = 0.0


SERVICES: Mapping[str, Service] = {
    FRONT: Service("", {name: Work(answer_kib=24) for name in ("home", "search", "product", "cart", "checkout")}),
    ENTRY: Service("compute", {
        "home": Work(2, (("cart.count",), ("catalogue.list", "recommendation.top")), ("analytics.visit",), 24),
        "search": Work(2, (("search.find",), ("catalogue.list", "pricing.quote")), ("analytics.visit",), 24),
        "product": Work(2, (("catalogue.item",), ("reviews.read", "recommendation.top", "inventory.stock")),
                        ("analytics.visit",), 24),
        "cart": Work(1, (("cart.items",), ("pricing.quote", "shipping.quote")), (), 24),
        "checkout": Work(1, (("checkout.buy",),), ("analytics.visit",), 24),
    }, cpu_limit_cores=0.6),
    "catalogue": Service("compute", {
        "list": Work(3, (("mariadb.rows",),), answer_kib=16), "item": Work(1, (("mariadb.row",),), answer_kib=8)}),
    "search": Service("memory", {"find": Work(8, answer_kib=8)}),
    "recommendation": Service("memory", {"top": Work(6, (("images.read",),), answer_kib=8)}),
    "images": Service("disk_read", {"read": Work(3, answer_kib=16)}, disk_operations=3),
    "reviews": Service("disk_read", {"read": Work(6, (("users.names",),), answer_kib=16)}, disk_operations=6),
    "users": Service("compute", {"names": Work(2, (("redis.basket",),), answer_kib=4)}),
    "inventory": Service("compute", {"stock": Work(2, (("mariadb.row",),)), "take": Work(2, (("mariadb.write",),))}),
    "pricing": Service("compute", {"quote": Work(5, answer_kib=4)}),
    "cart": Service("compute", {
        "count": Work(1, (("redis.basket",),)),
        "items": Work(3, (("redis.basket",), ("catalogue.item",)), answer_kib=8)}),
    "shipping": Service("compute", {"quote": Work(6)}),
    "checkout": Service("compute", {"buy": Work(2, (
        ("cart.items",), ("pricing.quote", "shipping.quote"), ("payment.charge",), ("orders.place", "inventory.take")),
        ("notification.mail",), 4)}),
    "payment": Service("waiting", {"charge": Work(15)}),
    "orders": Service("disk_write", {"place": Work(2, (("mariadb.write",),))}, disk_operations=2),
    "notification": Service("waiting", {"mail": Work(30, (("users.names",),))}),
    "analytics": Service("disk_write", {"visit": Work(1)}),
    "redis": Service("", {"basket": Work()}),
    "mariadb": Service("", {"rows": Work(answer_kib=16), "row": Work(), "write": Work()}, cpu_limit_cores=0.4,
                       disk_operations=5),
}

# Request type -> its share of the requests.
REQUESTS: Mapping[str, float] = {"home": 0.3, "search": 0.2, "product": 0.25, "cart": 0.1, "checkout": 0.15}


def calls(work: Work, *, background: bool = True) -> Iterator[str]:
    """What an operation calls, with or without what it does not wait for."""
    for stage in work.stages:
        yield from stage
    if background:
        yield from work.background


def calls_per_request(*, background: bool = True) -> dict[str, float]:
    """How often an average request calls each operation ("service.operation"), directly or through others."""
    counts: dict[str, float] = {}

    def count(target: str, share: float) -> None:
        counts[target] = counts.get(target, 0.0) + share
        service, operation = target.split(".")
        for called in calls(SERVICES[service].operations[operation], background=background):
            count(called, share)

    for request, share in REQUESTS.items():
        counts[f"{FRONT}.{request}"] = share
        count(f"{ENTRY}.{request}", share)
    return counts


def waited_for() -> tuple[str, ...]:
    """Services on whose answers some request waits, in the order of SERVICES."""
    named = {target.split(".")[0] for target in calls_per_request(background=False)}
    return tuple(name for name in SERVICES if name in named)


def needs(requests_per_s: float) -> dict[str, tuple[float, float]]:
    """Service -> (answers in bytes a second, disk operations a second) at that rate of requests."""
    totals = {name: [0.0, 0.0] for name in SERVICES}
    for target, count in calls_per_request().items():
        name, operation = target.split(".")
        totals[name][0] += requests_per_s * count * 1024 * SERVICES[name].operations[operation].answer_kib
        totals[name][1] += requests_per_s * count * SERVICES[name].disk_operations
    return {name: (answers, operations) for name, (answers, operations) in totals.items()}
